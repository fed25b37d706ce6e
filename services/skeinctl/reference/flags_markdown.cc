#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "services/skeinctl/exit_codes.h"
#include "services/skeinctl/reference/reference.h"

namespace skein::services {
namespace {

constexpr char kIntroduction[] =
    R"(# Flags

The `--help` texts of all programs on one page. This page is generated, and a test compares it with the code. To change
it, edit the descriptions in the code, then run `bazel run //services/skeinctl -- docs flags > docs/flags.md`.

- A flag is `--name VALUE` or `--name=VALUE`. Names are written with `-`; `_` means the same. A flag without a value in
  its heading is `--name`, `--name=true` or `--name=false`.
- Every flag has an environment variable: `SKEIN_` and its name in capitals, with `_` for `-` (`--max-body-bytes` is
  `SKEIN_MAX_BODY_BYTES`). For skeinctl's commands it begins with `SKEINCTL_`, because names such as `--model` have
  another meaning there; only `SKEIN_ORCHESTRATOR`, `SKEIN_API_KEY`, `SKEIN_TLS_DIR` and
  `SKEIN_CLUSTER_TOKEN_FILE` are shared. Every flag may also be set in a YAML
  file, named by `--config FILE` (`max-body-bytes: 1048576`; a repeatable flag takes a list). The command line overrides
  the environment, and the environment overrides the file. Unknown flags and unknown keys of the file are errors. A
  variable whose name is nearly that of a flag causes a warning at start.
- Units end a name: `-s` seconds, `-us` microseconds, `-bytes`, `-gib`, `-tokens`.
- Every program has `--help` and `--version`.
- After wrong usage or a failed start, a program prints each problem as one line of plain text on standard error
  (`router: error: --port: 'x' is not a whole number`) and exits with 2. A service that has started logs one JSON
  object per line on standard error, and exits with 0 after SIGTERM or SIGINT. A worker exits with 3 when its engine
  failed, and with 1 when the orchestrator refuses it because its KV differs from that of other instances of its model.
- `skeinctl completion bash|zsh|fish` prints a completion script, `skeinctl docs man DIR` writes man pages.
)";

std::string Cell(const std::string& text) {
  return absl::StrReplaceAll(text, {{"|", "\\|"}, {"<", "&lt;"}});
}

std::string Values(const FlagDescription& flag) {
  if (!flag.choices.empty()) return "`" + absl::StrJoin(flag.choices, "`, `") + "`";
  return flag.limits;
}

std::string Row(const FlagDescription& flag) {
  const std::string value = flag.value.empty() ? "" : " " + flag.value;
  std::string standard = flag.default_text.empty() ? "" : "`" + flag.default_text + "`";
  if (flag.required) standard = "required";
  return absl::StrCat("| `--", flag.name, Cell(value), "` | ", Cell(Values(flag)), " | ",
                      Cell(standard), " | ", Cell(flag.help),
                      flag.repeatable ? " May be repeated." : "", " |\n");
}

std::string Section(const CommandDescription& command) {
  std::string text = absl::StrCat("\n## ", command.name, "\n\n", command.Summary(), "\n");
  for (const PositionalDescription& positional : command.positionals) {
    absl::StrAppend(&text, "\n`", positional.name, "`", positional.required ? "" : " (optional)",
                    positional.repeatable ? " (may be repeated)" : "",
                    positional.help.empty() ? "" : ": " + positional.help, "\n");
  }
  std::string group;
  for (const FlagDescription& flag : command.flags) {
    if (flag.group == "General") continue;  // the same for all
    if (flag.group != group) {
      absl::StrAppend(&text, "\n| ", flag.group,
                      " | values | default | what it does |\n|---|---|---|---|\n");
    }
    group = flag.group;
    text += Row(flag);
  }
  return text;
}

std::string ExitCodes() {
  std::string text = "\n## Exit codes of skeinctl\n\n| code | meaning |\n|---|---|\n";
  for (const ExitCodeMeaning& one : kExitCodes) {
    absl::StrAppend(&text, "| ", one.code, " | ", one.meaning, " |\n");
  }
  return text;
}

}  // namespace

std::string FlagsMarkdown(const Reference& reference) {
  std::string text = kIntroduction + ExitCodes();
  text +=
      "\n## Every program\n\n| General | values | default | what it does |\n|---|---|---|---|\n";
  for (const FlagDescription& flag : reference.services.front().flags) {
    if (flag.group == "General") text += Row(flag);
  }
  text += "\nAll services have `--log-level` and `--log-format`; skeinctl does not.\n";
  for (const CommandDescription& service : reference.services) text += Section(service);
  for (const CommandDescription& command : reference.commands) text += Section(command);
  return text;
}

}  // namespace skein::services
