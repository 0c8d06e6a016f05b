#include "support/gpu_emulator/module.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <regex>
#include <set>
#include <sstream>

#include "base/error.h"
#include "base/hash.h"
#include "support/test_cache.h"

namespace meshtrain::gpu {
namespace {

namespace fs = std::filesystem;

// No contraction: products and sums round as the CPU backend's do. Strict aliasing is off, since
// kernels read shared memory as what they last wrote. What lies where its type may not is a trap,
// as on a GPU. -Og compiles in two thirds of the time of -O1 and runs as fast; -O0 runs half as
// fast.
constexpr const char* kFlags =
    " -std=c++20 -Og -w -fPIC -shared -ffp-contract=off -fno-strict-aliasing -fno-math-errno"
    " -fsanitize=alignment -fsanitize-undefined-trap-on-error"
    " -fno-asynchronous-unwind-tables -fvisibility=hidden -x c++ ";
// Dynamic shared memory of a block may have this size on every architecture from sm_80; behind it
// lies a margin that must stay as it is.
constexpr int kSharedBytes = 164 * 1024, kSharedMargin = 4096;

std::string read_file(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

const std::string& prelude() {
  static const std::string text = [] {
    const fs::path folder = fs::path(MESHTRAIN_SOURCE_DIR) / "tests/support/gpu_emulator";
    const std::string abi = read_file(folder / "module_abi.h"), shim = read_file(folder / "shim.h");
    MESHTRAIN_CHECK(!abi.empty() && !shim.empty(), "no shim in {}", folder.string());
    return std::regex_replace(abi + shim, std::regex("#pragma once\n"), "");
  }();
  return text;
}

// Definitions of what `extern __shared__ T name[];` declares, and the table of kernels.
std::string epilogue(const std::string& text, const std::vector<std::string>& kernels) {
  std::string out;
  std::set<std::string> names;
  const std::regex declaration("extern\\s+__shared__\\s+([^;]*?)(\\w+)\\s*\\[\\s*\\]\\s*;");
  for (std::sregex_iterator it(text.begin(), text.end(), declaration), end; it != end; ++it) {
    if (names.insert((*it)[2]).second) {
      out += fmt::format("__attribute__((aligned(1024))) {} {}[{}];\n", (*it)[1].str(),
                         (*it)[2].str(), kSharedBytes + kSharedMargin);
    }
  }
  MESHTRAIN_CHECK(names.size() <= 1, "a module with {} arrays of shared memory", names.size());
  out += "static const EmulatorKernel emulator_kernels[] = {\n";
  for (const std::string& name : kernels) {
    out += fmt::format(
        "  {{\"{0}\", [](const void* params) {{ emulator_call({0}, params); }}, "
        "emulator_params_bytes({0})}},\n",
        name);
  }
  out += "  {0, 0, 0}};\n";
  out += fmt::format(
      "static const EmulatorModule emulator_module_data = {{&threadIdx, &blockIdx, &gridDim, "
      "&emulator_barrier, &emulator_exchange, {}, {}, emulator_kernels, {}}};\n"
      "extern \"C\" __attribute__((visibility(\"default\"))) const EmulatorModule* "
      "emulator_module() {{ return &emulator_module_data; }}\n",
      names.empty() ? "0" : "(unsigned char*)" + *names.begin(), names.empty() ? 0 : kSharedBytes,
      kernels.size());
  return out;
}

void compile(const std::string& source, const fs::path& object) {
  const std::string stem = fmt::format("{}.{}", object.string(), ::getpid());
  const std::string made = stem + ".new", log = stem + ".log", text = stem + ".cc";
  std::ofstream(text, std::ios::binary) << source;
  const std::string command =
      fmt::format("{}{}'{}' -o '{}' 2> '{}'", host_compiler(), kFlags, text, made, log);
  const int status = std::system(command.c_str());
  const std::string words = read_file(log).substr(0, 8000);
  fs::remove(log);
  if (status != 0) {
    fs::rename(text, object.string() + ".failed.cc");
    throw InternalError(fmt::format("generated kernels do not compile ({}.failed.cc): {}\n{}",
                                    object.string(), command, words));
  }
  fs::remove(text);
  fs::rename(made, object);
}

// Of several processes that need the same object, one compiles it, and nobody removes an object
// that another process loads. 256 files of locks serve all objects: a removed file would lock
// nothing.
class CompilerLock {
 public:
  explicit CompilerLock(const fs::path& object)
      : file_(::open(file_name(object).c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600)) {
    while (file_ >= 0 && ::flock(file_, LOCK_EX) != 0 && errno == EINTR) {
    }
  }
  ~CompilerLock() { ::close(file_); }
  CompilerLock(const CompilerLock&) = delete;
  CompilerLock& operator=(const CompilerLock&) = delete;

 private:
  static std::string file_name(const fs::path& object) {
    return object.parent_path() / (object.filename().string().substr(0, 2) + ".lock");
  }
  int file_;
};

// Removes objects that are not used any more, and what killed compilers left.
void remove_old(const fs::path& folder) {
  const auto limit = fs::file_time_type::clock::now() - test::kKeptInCache;
  std::error_code error;
  const auto is_old = [&](const fs::path& path) {
    const fs::file_time_type time = fs::last_write_time(path, error);
    return !error && time < limit;
  };
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    const fs::path& path = entry.path();
    if (path.extension() == ".lock" || !is_old(path))
      continue;
    const CompilerLock lock(path);
    if (is_old(path))
      fs::remove(path, error);
  }
}

}  // namespace

std::string host_compiler() {
  static const std::string found = [] {
    const char* asked = std::getenv("CXX");
    for (const char* compiler : {asked, MESHTRAIN_CXX, "g++"}) {
      if (compiler != nullptr && *compiler != '\0' &&
          std::system((std::string(compiler) + " --version > /dev/null 2>&1").c_str()) == 0)
        return std::string(compiler);
    }
    return std::string();
  }();
  return found;
}

Module::Module(const std::string& text, const std::vector<std::string>& kernels) {
  static const fs::path folder = [] {
    const fs::path found = test::test_cache_folder("emulator");
    remove_old(found);
    return found;
  }();
  const std::string source = prelude() + text + epilogue(text, kernels);
  const fs::path object =
      folder / fmt::format("{:016x}.so", hash_text(host_compiler() + kFlags + source));
  const CompilerLock lock(object);
  std::error_code missing;
  fs::last_write_time(object, fs::file_time_type::clock::now(), missing);
  if (missing)
    compile(source, object);
  void* handle = ::dlopen(object.c_str(), RTLD_NOW | RTLD_LOCAL);
  MESHTRAIN_CHECK(handle != nullptr, "{}", ::dlerror());
  using Entry = const EmulatorModule* (*)();
  const Entry entry = reinterpret_cast<Entry>(::dlsym(handle, "emulator_module"));
  MESHTRAIN_CHECK(entry != nullptr, "{} has no entry", object.string());
  abi_ = entry();
}

const EmulatorKernel& Module::kernel(const std::string& name) const {
  const EmulatorKernel* end = abi_->kernels + abi_->num_kernels;
  const EmulatorKernel* found = std::find_if(
      abi_->kernels, end, [&](const EmulatorKernel& kernel) { return name == kernel.name; });
  MESHTRAIN_CHECK(found != end, "the module has no kernel {}", name);
  return *found;
}

std::shared_ptr<const Module> find_module(const MergedLaunches& joined) {
  static std::mutex one_at_a_time;  // devices of one process have threads of their own
  static std::map<std::string, std::shared_ptr<const Module>> modules;
  std::set<std::string> kernels;
  for (const Call& call : joined.calls) {
    if (const auto* kernel = std::get_if<KernelCall>(&call.what))
      kernels.insert(kernel->kernel);
  }
  if (kernels.empty())
    return nullptr;
  const std::lock_guard lock(one_at_a_time);
  std::shared_ptr<const Module>& module = modules[joined.module];
  if (module == nullptr) {
    module = std::make_shared<Module>(joined.module,
                                      std::vector<std::string>(kernels.begin(), kernels.end()));
  }
  return module;
}

}  // namespace meshtrain::gpu
