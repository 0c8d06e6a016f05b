// meshtrain completion: what bash and zsh ask when a word is completed.
#include "completion.h"

#include "base/text.h"
#include "output.h"
#include "subcommand.h"

namespace meshtrain {
namespace {

struct CompletionOptions {
  std::string shell;
  std::vector<std::string> words;
  const CLI::App* program = nullptr;
};

// bash ends its own word at `=` and `:`, so what stands before these is taken off the answers.
constexpr const char* kBash = R"(_meshtrain() {
  local line=${COMP_LINE:0:COMP_POINT} answer
  local -a given
  read -ra given <<< "$line"
  [[ $line != *[[:space:]] ]] || given+=("")
  local last=${given[${#given[@]} - 1]}
  local before=${last%"${last##*[=:]}"}
  COMPREPLY=()
  while IFS= read -r answer; do
    COMPREPLY+=("${answer#"$before"}")
  done < <("${given[0]}" completion words -- "${given[@]:1}" 2>/dev/null)
  [[ ${#COMPREPLY[@]} -ne 1 || ${COMPREPLY[0]} != *[=./] ]] || compopt -o nospace
}
complete -o bashdefault -o default -F _meshtrain meshtrain
)";

constexpr const char* kZsh = R"(#compdef meshtrain
_meshtrain() {
  local answer
  local -a open closed
  for answer in "${(@f)$("${words[1]}" completion words -- "${(@)words[2,CURRENT-1]}" "$PREFIX" 2>/dev/null)}"; do
    case $answer in
      '') ;;
      *[=./]) open+=("$answer") ;;
      *) closed+=("$answer") ;;
    esac
  done
  (( ${#open} + ${#closed} )) || { _files; return }
  compadd -S '' -a open
  compadd -a closed
}
if [[ $funcstack[1] == _meshtrain ]]; then _meshtrain; else compdef _meshtrain meshtrain; fi
)";

int run_completion(const CompletionOptions& options, Invocation&) {
  if (options.shell != "words") {
    out_stream().write(options.shell == "bash" ? kBash : kZsh);
    return 0;
  }
  std::string out;
  for (const std::string& word : completions(*options.program, options.words)) {
    out += word + "\n";
  }
  out_stream().write(out);
  return 0;
}

}  // namespace

void add_completion(Subcommands& to) {
  auto [app, options, subcommand] = to.add<CompletionOptions>(
      "completion", "Completion for a shell: eval \"$(meshtrain completion bash)\"",
      run_completion);
  options.program = app.get_parent();
  app.add_option("SHELL", options.shell,
                 "bash or zsh; `words -- WORD...` answers what may follow, one a line")
      ->required()
      ->type_name("bash|zsh")
      ->check(one_of({"bash", "zsh", "words"}));
  app.add_option("WORD", options.words, "Words of a command line, the last to be completed");
}

}  // namespace meshtrain
