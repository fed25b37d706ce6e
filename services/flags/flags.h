// Flags of a Skein program. Every flag `--name` has an environment twin `SKEIN_NAME` ('-' becomes
// '_'; of skeinctl's commands `SKEINCTL_NAME`) and may stand in a YAML file given by `--config`; a
// flag on the command line wins over the environment, the environment over the file. Names are
// written with '-'; '_' is understood as the same. Unknown flags, values of SKEIN_* variables that
// do not parse, and unknown keys of the file are errors that name the key and the value. All
// problems are reported at once, not one a run.
//
// CLI11 parses the command line and prints the help (flag_parser.h). What a FlagSet registers is
// the one description of which help, man pages, completion and docs/flags.md are made.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "services/flags/flag_parser.h"

namespace skein::services {

class FlagSet {
 public:
  // `about`: a sentence that sums up, then more lines if they help (see CommandDescription).
  explicit FlagSet(std::string about = "") { description_.about = std::move(about); }

  // Says more of the flag that was just registered.
  class Detail {
   public:
    // The placeholder of the value in help, as HOST:PORT. The default follows from type and name:
    // SECONDS for `lease-s`. Shells complete FILE and DIR.
    Detail& Value(std::string word);
    // The only values that there are.
    Detail& OneOf(std::vector<std::string> values);
    // It must be given, and not be empty.
    Detail& Required();
    // The text in help in place of the default, as "the host's name".
    Detail& Default(std::string words);
    // The name of its environment twin, if it does not follow from the flag's.
    Detail& Environment(std::string variable);

   private:
    friend class FlagSet;
    Detail(FlagSet* set, size_t index) : set_(set), index_(index) {}
    FlagDescription& description() { return set_->description_.flags[index_]; }
    FlagSet* const set_;
    const size_t index_;
  };

  // As it is typed: "router", "skeinctl status".
  void Name(std::string name) { description_.name = std::move(name); }
  // The prefix of the environment variables of flags registered from here on; default: "SKEIN_".
  void EnvironmentPrefix(std::string prefix) { prefix_ = std::move(prefix); }
  void About(std::string about) { description_.about = std::move(about); }
  // The heading in the help for the flags that are registered from here on.
  void Group(std::string heading) { group_ = std::move(heading); }

  // Registers a flag; *target holds its default, and keeps it until Parse. Targets must outlive
  // Parse and Effective. `help` is one sentence.
  Detail String(std::string* target, std::string name, std::string help);
  Detail Strings(std::vector<std::string>* target, std::string name, std::string help);  // repeats
  Detail Int(int64_t* target, std::string name, std::string help, int64_t min, int64_t max);
  Detail Double(double* target, std::string name, std::string help, double min, double max);
  Detail Bool(bool* target, std::string name, std::string help);

  // The next argument that is no flag. *target must be empty; an optional one may stay so.
  void Positional(std::string* target, std::string name, std::string help = "",
                  std::vector<std::string> choices = {});
  void OptionalPositional(std::string* target, std::string name, std::string help = "",
                          std::vector<std::string> choices = {});

  // A check across flags: runs when each of them is valid by itself.
  void Check(std::function<absl::Status()> check) { checks_.push_back(std::move(check)); }

  // Applies file, environment and command line. INVALID_ARGUMENT lists every problem, one a line.
  // Returns CANCELLED with the text to print as message after --help and --version.
  absl::Status Parse(int argc, const char* const* argv,
                     const std::map<std::string, std::string>& environment);

  // The variables that begin as environment twins do and are none, but nearly. Each with the twin
  // that may have been meant. After Parse. Names that are not close to any may belong to others.
  struct Mistyped {
    std::string variable, closest;
  };
  std::vector<Mistyped> MistypedVariables(
      const std::map<std::string, std::string>& environment) const;

  // The values in force as one JSON object, for the log at start.
  std::string EffectiveJson() const;
  std::string Help() const { return HelpText(Describe()); }
  // With the flags that every program has.
  CommandDescription Describe() const;
  const std::string& name() const { return description_.name; }

 private:
  struct Flag {
    std::function<absl::Status(std::string_view)> set;
    std::function<std::string()> json;
    std::function<void()> clear;  // of repeatable ones
    int strength = 0;  // 0 default, 1 file, 2 environment, 3 command line: the strongest stays
  };

  void Complete();  // with the flags that every program has
  Detail Add(FlagDescription description, Flag flag);
  size_t Find(std::string_view name) const;  // flags_.size(): unknown
  void Apply(size_t index, std::string_view value, int strength, std::string_view source,
             std::vector<std::string>* problems);
  void ApplyPositionals(const ParsedArguments& parsed, std::vector<std::string>* problems);
  void ApplyArguments(const ParsedArguments& parsed, std::vector<std::string>* problems);
  void ApplyEnvironment(const std::map<std::string, std::string>& environment,
                        std::vector<std::string>* problems);
  void ApplyFile(const std::string& path, std::vector<std::string>* problems);
  void CheckRequired(std::vector<std::string>* problems) const;

  CommandDescription description_;  // [flags] in the order of flags_
  std::vector<Flag> flags_;
  std::vector<std::string*> positionals_;
  std::vector<std::function<absl::Status()>> checks_;
  std::string group_ = "Flags";
  std::string prefix_ = "SKEIN_";
  std::string config_;
  bool complete_ = false;
};

// The process's environment as a map.
std::map<std::string, std::string> EnvironmentMap();

}  // namespace skein::services
