// libcurl, loaded on first use: linking it, with its 30 dependencies, would cost 6.5 ms at each
// start of the program.
#pragma once

#include <curl/curl.h>

namespace meshtrain {

struct CurlLibrary {
  decltype(&curl_global_init) global_init = nullptr;
  decltype(&curl_easy_init) easy_init = nullptr;
  decltype(&curl_easy_setopt) easy_setopt = nullptr;
  decltype(&curl_easy_perform) easy_perform = nullptr;
  decltype(&curl_easy_getinfo) easy_getinfo = nullptr;
  decltype(&curl_easy_cleanup) easy_cleanup = nullptr;
  decltype(&curl_easy_strerror) easy_strerror = nullptr;
};

// Throws RuntimeFailure (exit 1) when it is not installed.
const CurlLibrary& curl_library();

}  // namespace meshtrain
