// The command line of one Skein program or command, described once. CLI11 uses the description to
// parse arguments and print help. Man pages, shell completion and docs/flags.md come from the same
// description (services/skeinctl/reference/reference.h).
#pragma once

#include <string>
#include <vector>

namespace skein::services {

struct FlagDescription {
  std::string name;   // without "--", written with '-'
  std::string value;  // placeholder of the value in help, as PORT; empty: no value
  std::string help;   // one sentence
  std::string group;
  std::string default_text;  // empty: not shown
  std::string environment;   // environment variable; empty: none
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
  bool repeatable = false;  // takes all arguments that follow; only the last one
};

struct CommandDescription {
  std::string name;  // as typed: "router", "skeinctl status"
  // The first line is a summary of one sentence; the rest are paragraphs.
  std::string about;
  std::vector<PositionalDescription> positionals;
  std::vector<FlagDescription> flags;

  std::string Summary() const { return about.substr(0, about.find('\n')); }
};

// Flags and values of the arguments, in order; nothing is converted yet.
struct ParsedArguments {
  std::vector<std::vector<std::string>>
      flags;  // values by [command.flags]; "true" for a flag without value
  // At most as many as command.positionals, unless the last of these is repeatable.
  std::vector<std::string> positionals;
  bool help = false;
  bool version = false;
  std::vector<std::string> problems;  // unknown flags, stray arguments, missing values
};

// Skips argv[0]. '_' in a flag's name means '-'.
ParsedArguments ParseArguments(const CommandDescription& command, int argc,
                               const char* const* argv);

std::string HelpText(const CommandDescription& command);

// "default 8000; 0 to 65535; SKEIN_PORT": everything about a flag except name and help. May be
// empty.
std::string DetailsOf(const FlagDescription& flag);

// `text` in lines of at most `width` columns, each indented by `indent` spaces. Ends with a
// newline.
std::string Wrapped(const std::string& text, int indent, int width);

}  // namespace skein::services
