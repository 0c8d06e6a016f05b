// Commands of the user: a program with a text on its standard input.
#pragma once

#include <string>
#include <vector>

namespace meshtrain {

// Runs `words`, the first of which is searched on PATH, with `input` on its standard input, and
// waits at most `timeout` seconds. What it prints goes to standard error. Returns why it failed: it
// could not be started, ended with a code but 0 or by a signal, or took longer, after which it and
// its children are killed; empty when it did not. Variables whose names begin with one of `without`
// are not in its environment.
std::string run_command(const std::vector<std::string>& words, const std::string& input,
                        double timeout, const std::vector<std::string>& without = {});

}  // namespace meshtrain
