// Where a thread of this process is, for somebody who asks why it hangs.
#pragma once

#include <pthread.h>

#include <string>

namespace meshtrain {

// Writes `title` and the functions that `thread` is in to standard error, as `program(+0x1f2a)`:
// `addr2line -e program 0x1f2a` gives file and line. Interrupts the thread by a signal (the last
// real-time one) and waits for it one second at most; says so where it does not answer.
void dump_stack(pthread_t thread, const std::string& title);

}  // namespace meshtrain
