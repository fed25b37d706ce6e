// The command line of one Skein program or command, described once. From the description CLI11
// splits arguments into flags and values and prints the help; man pages, shell completion and
// docs/flags.md are made of the same description (services/skeinctl/reference/reference.h).
#pragma once

#include <string>
#include <vector>

namespace skein::services {

struct FlagDescription {
  std::string name;   // without "--", written with '-'
  std::string value;  // what stands for the value in help, as PORT; empty: takes none
  std::string help;   // one sentence
  std::string group;
  std::string default_text;  // empty: none that is worth a word
  std::string environment;   // empty: has no twin
  std::string limits;        // as "0 to 65535"; empty: none
  std::vector<std::string> choices;
  bool required = false;
  bool repeatable = false;
};

struct PositionalDescription {
  std::string name;  // as FILE
  std::string help;
  bool required = true;
  std::vector<std::string> choices;
};

struct CommandDescription {
  std::string name;  // as it is typed: "router", "skeinctl status"
  // The first line is a summary of one sentence; the rest are paragraphs.
  std::string about;
  std::vector<PositionalDescription> positionals;
  std::vector<FlagDescription> flags;

  std::string Summary() const { return about.substr(0, about.find('\n')); }
};

// The flags and values of the arguments, in their order; nothing is converted yet.
struct ParsedArguments {
  std::vector<std::vector<std::string>> flags;  // values of [command.flags]; "true" for one without
  std::vector<std::string> positionals;         // at most as many as command.positionals
  bool help = false;
  bool version = false;
  std::vector<std::string> problems;  // unknown flags, stray arguments, missing values
};

// argv[0] is skipped. '_' in the name of a flag is understood as '-'.
ParsedArguments ParseArguments(const CommandDescription& command, int argc,
                               const char* const* argv);

std::string HelpText(const CommandDescription& command);

// "default 8000; 0 to 65535; SKEIN_PORT": all of a flag but its name and help. May be empty.
std::string DetailsOf(const FlagDescription& flag);

// `text` in lines of at most `width` columns, each after `indent` spaces. Ends with a newline.
std::string Wrapped(const std::string& text, int indent, int width);

}  // namespace skein::services
