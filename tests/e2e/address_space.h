// Programs that may take little memory.
#pragma once

#include <doctest/doctest.h>
#include <sys/resource.h>

namespace meshtrain {

// Limits the address space of programs begun meanwhile. Not for instrumented ones, which take
// terabytes of it.
class AddressSpace {
 public:
  explicit AddressSpace(rlim_t bytes) {
    REQUIRE(getrlimit(RLIMIT_AS, &before_) == 0);
    const rlimit limit = {bytes, before_.rlim_max};
    REQUIRE(setrlimit(RLIMIT_AS, &limit) == 0);
  }
  ~AddressSpace() { setrlimit(RLIMIT_AS, &before_); }
  AddressSpace(const AddressSpace&) = delete;
  AddressSpace& operator=(const AddressSpace&) = delete;

 private:
  rlimit before_ = {};
};

}  // namespace meshtrain
