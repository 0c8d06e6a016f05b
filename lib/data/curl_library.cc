#include "data/curl_library.h"

#include <dlfcn.h>

#include "base/error.h"

namespace meshtrain {
namespace {

template <class F>
void find(void* library, const char* name, F& function) {
  function = reinterpret_cast<F>(::dlsym(library, name));
  if (function == nullptr) {
    throw RuntimeFailure(ExitCode::kUnexpected, fmt::format("libcurl has no `{}`", name));
  }
}

CurlLibrary load() {
  void* const library = ::dlopen("libcurl.so.4", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    throw RuntimeFailure(ExitCode::kUnexpected,
                         fmt::format("downloads need libcurl (Debian: libcurl4): {}", ::dlerror()));
  }
  CurlLibrary curl;
  find(library, "curl_global_init", curl.global_init);
  find(library, "curl_easy_init", curl.easy_init);
  find(library, "curl_easy_setopt", curl.easy_setopt);
  find(library, "curl_easy_perform", curl.easy_perform);
  find(library, "curl_easy_getinfo", curl.easy_getinfo);
  find(library, "curl_easy_cleanup", curl.easy_cleanup);
  find(library, "curl_easy_strerror", curl.easy_strerror);
  if (curl.global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) {
    throw RuntimeFailure(ExitCode::kUnexpected, "libcurl cannot be initialized");
  }
  return curl;
}

}  // namespace

const CurlLibrary& curl_library() {
  static const CurlLibrary library = load();
  return library;
}

}  // namespace meshtrain
