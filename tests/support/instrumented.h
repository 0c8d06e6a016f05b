// Whether the sanitizers watch this build, which then takes some ten times as long.
#pragma once

namespace meshtrain::test {

// Long trainings are cut short there: their numbers are the release build's business, their memory
// and arithmetic that of the first steps.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kIsInstrumented = true;
#else
constexpr bool kIsInstrumented = false;
#endif

}  // namespace meshtrain::test
