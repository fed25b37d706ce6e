#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "services/skeinctl/reference/reference.h"

namespace skein::services {
namespace {

bool TakesFile(const FlagDescription& flag) {
  return flag.value == "FILE" || flag.value == "PROFILE" || flag.value == "TRACE";
}
bool TakesFolder(const FlagDescription& flag) { return absl::EndsWith(flag.value, "DIR"); }

std::string Verb(const CommandDescription& command) {
  return command.name.substr(command.name.find(' ') + 1);
}

std::vector<std::string> Verbs(const Reference& reference) {
  std::vector<std::string> verbs = {"help"};
  for (const CommandDescription& command : reference.commands) verbs.push_back(Verb(command));
  return verbs;
}

// The installed name of a service: prefill_worker is skein-prefill-worker.
std::string InstalledName(const CommandDescription& service) {
  return "skein-" + absl::StrReplaceAll(service.name, {{"_", "-"}});
}

std::string ServiceNames(const Reference& reference) {
  return absl::StrJoin(reference.services, " ", [](std::string* out, const auto& service) {
    absl::StrAppend(out, service.name, " ", InstalledName(service));
  });
}

std::vector<CommandDescription> All(const Reference& reference) {
  std::vector<CommandDescription> all = reference.services;
  all.insert(all.end(), reference.commands.begin(), reference.commands.end());
  return all;
}

// In single quotes.
std::string Quoted(const std::string& text) {
  return absl::StrCat("'", absl::StrReplaceAll(text, {{"'", "'\\''"}}), "'");
}

// ---- bash

std::string BashFlags(const CommandDescription& command) {
  std::string flags;
  for (const FlagDescription& flag : command.flags) absl::StrAppend(&flags, "--", flag.name, " ");
  std::string values;
  for (const PositionalDescription& positional : command.positionals) {
    absl::StrAppend(&values, values.empty() ? "" : " ", absl::StrJoin(positional.choices, " "));
  }
  return absl::StrCat("    ", Quoted(command.name), ") flags=", Quoted(flags + "--help --version"),
                      " words=", Quoted(values), " ;;\n");
}

std::string BashValues(const CommandDescription& command) {
  std::string text;
  for (const FlagDescription& flag : command.flags) {
    const std::string pattern =
        absl::StrCat("    ", Quoted(command.name + " --" + flag.name), ") ");
    if (!flag.choices.empty()) {
      absl::StrAppend(&text, pattern, "words=", Quoted(absl::StrJoin(flag.choices, " ")), " ;;\n");
    } else if (TakesFile(flag)) {
      absl::StrAppend(&text, pattern, "kind=file ;;\n");
    } else if (TakesFolder(flag)) {
      absl::StrAppend(&text, pattern, "kind=directory ;;\n");
    } else if (!flag.value.empty()) {
      absl::StrAppend(&text, pattern, "kind=other ;;\n");
    }
  }
  return text;
}

std::string BashScript(const Reference& reference) {
  std::string flags, values;
  for (const CommandDescription& command : All(reference)) {
    flags += BashFlags(command);
    values += BashValues(command);
  }
  return absl::StrCat(
      "# Completion of Skein's programs for bash: source <(skeinctl completion bash)\n"
      "_skein() {\n"
      "  local current=${COMP_WORDS[COMP_CWORD]} command=${COMP_WORDS[0]##*/}\n"
      "  local previous=${COMP_WORDS[COMP_CWORD - 1]} flags='' words='' kind=''\n"
      "  # bash splits --flag=value into three words.\n"
      "  if [[ $current == = ]]; then\n"
      "    current=''\n"
      "  elif [[ $previous == = ]]; then\n"
      "    previous=${COMP_WORDS[COMP_CWORD - 2]}\n"
      "  fi\n"
      "  if [[ $command == skein-* ]]; then\n"
      "    command=${command#skein-}\n"
      "    command=${command//-/_}\n"
      "  fi\n"
      "  if [[ $command == skeinctl ]]; then\n"
      "    if ((COMP_CWORD == 1)) || [[ ${COMP_WORDS[1]} == help ]]; then\n"
      "      COMPREPLY=($(compgen -W ",
      Quoted(absl::StrJoin(Verbs(reference), " ") + " --help --version"),
      " -- \"$current\"))\n"
      "      return\n"
      "    fi\n"
      "    command+=\" ${COMP_WORDS[1]}\"\n"
      "  fi\n"
      "  case \"$command ${previous//_/-}\" in\n",
      values,
      "  esac\n"
      "  case $kind in\n"
      "    file) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- \"$current\")); "
      "return ;;\n"
      "    directory) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -d -- \"$current\")); "
      "return ;;\n"
      "    other) COMPREPLY=(); return ;;\n"
      "  esac\n"
      "  if [[ -n $words ]]; then COMPREPLY=($(compgen -W \"$words\" -- \"$current\")); return; "
      "fi\n"
      "  case $command in\n",
      flags,
      "  esac\n"
      "  COMPREPLY=($(compgen -W \"$words $flags\" -- \"$current\"))\n"
      "}\n"
      "complete -F _skein skeinctl ",
      ServiceNames(reference), "\n");
}

// ---- zsh

// For an _arguments specification.
std::string ZshText(const std::string& text) {
  return absl::StrReplaceAll(text, {{"\\", "\\\\"}, {":", "\\:"}, {"[", "\\["}, {"]", "\\]"}});
}

std::string ZshArguments(const CommandDescription& command, const std::string& indent) {
  std::string text = "_arguments";
  for (const FlagDescription& flag : command.flags) {
    std::string spec = absl::StrCat(flag.repeatable ? "*" : "", "--", flag.name,
                                    flag.value.empty() ? "" : "=", "[", ZshText(flag.help), "]");
    if (!flag.value.empty()) absl::StrAppend(&spec, ":", ZshText(flag.value), ":");
    if (!flag.choices.empty()) absl::StrAppend(&spec, "(", absl::StrJoin(flag.choices, " "), ")");
    if (flag.choices.empty() && TakesFile(flag)) spec += "_files";
    if (flag.choices.empty() && TakesFolder(flag)) spec += "_files -/";
    absl::StrAppend(&text, " \\\n", indent, "  ", Quoted(spec));
  }
  for (const PositionalDescription& positional : command.positionals) {
    const std::string action =
        positional.choices.empty() ? "_files" : "(" + absl::StrJoin(positional.choices, " ") + ")";
    absl::StrAppend(&text, " \\\n", indent, "  ",
                    Quoted(absl::StrCat(positional.repeatable ? "*:" : ":",
                                        ZshText(positional.name), ":", action)));
  }
  return absl::StrCat(text, " \\\n", indent, "  '--help[Print the help and exit.]' \\\n", indent,
                      "  '--version[Print the version and exit.]'\n");
}

std::string ZshScript(const Reference& reference) {
  std::string text = absl::StrCat("#compdef skeinctl ", ServiceNames(reference),
                                  "\n# Completion of Skein's programs for zsh: write it to a file "
                                  "_skeinctl in a folder of $fpath.\n\n");
  absl::StrAppend(&text, "_skein_commands() {\n  local -a commands=(\n");
  for (const CommandDescription& command : reference.commands) {
    absl::StrAppend(&text, "    ", Quoted(Verb(command) + ":" + command.Summary()), "\n");
  }
  absl::StrAppend(
      &text, "    'help:Print the help of a command.'\n  )\n",
      "  _describe command commands\n}\n\n_skeinctl() {\n",
      "  if ((CURRENT == 2)) || [[ $words[2] == help ]]; then\n    _skein_commands\n"
      "    return\n  fi\n",
      "  local command=$words[2]\n  shift words\n  ((CURRENT--))\n  case $command in\n");
  for (const CommandDescription& command : reference.commands) {
    absl::StrAppend(&text, "    ", Verb(command), ")\n      ", ZshArguments(command, "      "),
                    "      ;;\n");
  }
  absl::StrAppend(&text, "  esac\n}\n\ncase $service in\n  skeinctl) _skeinctl ;;\n");
  for (const CommandDescription& service : reference.services) {
    absl::StrAppend(&text, "  ", service.name, "|", InstalledName(service), ")\n    ",
                    ZshArguments(service, "    "), "    ;;\n");
  }
  return text + "esac\n";
}

// ---- fish

std::string FishFlag(const std::string& prefix, const FlagDescription& flag) {
  std::string text = absl::StrCat(prefix, " -l ", flag.name, " -d ", Quoted(flag.help));
  if (!flag.choices.empty()) {
    absl::StrAppend(&text, " -xa ", Quoted(absl::StrJoin(flag.choices, " ")));
  } else if (TakesFile(flag)) {
    text += " -rF";
  } else if (TakesFolder(flag)) {
    text += " -xa '(__fish_complete_directories)'";
  } else if (!flag.value.empty()) {
    text += " -x";
  }
  return text + "\n";
}

std::string FishFlags(const std::string& prefix, const CommandDescription& command) {
  std::string text;
  for (const FlagDescription& flag : command.flags) text += FishFlag(prefix, flag);
  return absl::StrCat(text, prefix, " -l help -d 'Print the help and exit.'\n", prefix,
                      " -l version -d 'Print the version and exit.'\n");
}

std::string FishScript(const Reference& reference) {
  std::string text =
      "# Completion of Skein's programs for fish: skeinctl completion fish | source\n";
  const std::string verbs = absl::StrJoin(Verbs(reference), " ");
  const std::string first =
      "complete -c skeinctl -n 'not __fish_seen_subcommand_from " + verbs + "' -f";
  for (const CommandDescription& command : reference.commands) {
    absl::StrAppend(&text, first, " -a ", Verb(command), " -d ", Quoted(command.Summary()), "\n");
  }
  absl::StrAppend(&text, first, " -a help -d 'Print the help of a command.'\n", first,
                  " -l help -d 'Print the commands and exit.'\n", first,
                  " -l version -d 'Print the version and exit.'\n");
  absl::StrAppend(&text, "complete -c skeinctl -n '__fish_seen_subcommand_from help' -xa ",
                  Quoted(verbs), "\n");
  for (const CommandDescription& command : reference.commands) {
    const std::string prefix =
        "complete -c skeinctl -n '__fish_seen_subcommand_from " + Verb(command) + "'";
    for (const PositionalDescription& positional : command.positionals) {
      if (positional.choices.empty()) continue;
      absl::StrAppend(&text, prefix, " -fa ", Quoted(absl::StrJoin(positional.choices, " ")), "\n");
    }
    text += FishFlags(prefix, command);
  }
  for (const CommandDescription& service : reference.services) {
    text += FishFlags("complete -c " + service.name, service);
    text += FishFlags("complete -c " + InstalledName(service), service);
  }
  return text;
}

}  // namespace

absl::StatusOr<std::string> CompletionScript(const Reference& reference, const std::string& shell) {
  if (shell == "bash") return BashScript(reference);
  if (shell == "zsh") return ZshScript(reference);
  if (shell == "fish") return FishScript(reference);
  return absl::InvalidArgumentError(absl::StrCat("SHELL: '", shell, "' is not bash, zsh or fish"));
}

}  // namespace skein::services
