// What tests ask of the fake driver: what the program did wrong, what it left behind, which call
// fails.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#define MESHTRAIN_FAKE_API __attribute__((visibility("default")))

namespace meshtrain::fake_cuda {

// Illegal uses of the driver and the libraries since the last call, each as a sentence. A process
// that ends with problems, or with live objects, prints them and exits with kProblemsExit.
MESHTRAIN_FAKE_API std::vector<std::string> take_problems();
constexpr int kProblemsExit = 99;

// Streams, events, memory, modules, graphs and handles that are not destroyed: "2 events, 1
// stream"; "" for none.
MESHTRAIN_FAKE_API std::string live_objects();

// Calls so far of functions that can fail, and the name of call `number`.
MESHTRAIN_FAKE_API int64_t num_calls();
MESHTRAIN_FAKE_API std::string call_name(int64_t number);

enum class Fault {
  kOnce,    // the call fails, later ones do not
  kSticky,  // every later call of the driver fails too, as after an illegal address
};
// Call `number` (counted as num_calls() does) fails as a broken device does.
MESHTRAIN_FAKE_API void fail_call(int64_t number, Fault fault);
// The call of that name that comes after `skipped` others of it fails once.
MESHTRAIN_FAKE_API void fail_named_call(const std::string& name, int64_t skipped);
// Allocation `number` of device or pinned memory from now on, 0 for the next one, finds no memory.
MESHTRAIN_FAKE_API void fail_allocation(int64_t number);
// Allocations since the last fail_allocation() or clear_faults().
MESHTRAIN_FAKE_API int64_t num_allocations();
// Every compilation waits until so many have begun; 0: none waits. Waiting for half a minute is a
// problem.
MESHTRAIN_FAKE_API void hold_compilations(int together);
// Compilations of texts with this word wait until the word changes; "": none waits.
MESHTRAIN_FAKE_API void hold_compilation_of(const std::string& word);
// Texts with this word do not compile; "": all do.
MESHTRAIN_FAKE_API void refuse_compilation_of(const std::string& word);
// Compilations that have begun so far.
MESHTRAIN_FAKE_API int64_t num_compilations();
// Nothing fails any more; a device that failed works again.
MESHTRAIN_FAKE_API void clear_faults();

}  // namespace meshtrain::fake_cuda
