// Flags of a Skein program. Every flag `--name` has an environment variable `SKEIN_NAME` ('-'
// becomes '_'; `SKEINCTL_NAME` for skeinctl's commands) and may be set in a YAML file given by
// `--config`. The command line overrides the environment, and the environment overrides the file.
// Names are written with '-'; '_' means the same. Unknown flags, SKEIN_* values that do not parse,
// and unknown keys of the file are errors that name key and value. All problems are reported at
// once.
// CLI11 parses the command line and prints the help (flag_parser.h). Help, man pages, completion
// and docs/flags.md come from the one description that a FlagSet registers.
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
  // `about`: one summary sentence, then more lines if they help (see CommandDescription).
  explicit FlagSet(std::string about = "") { description_.about = std::move(about); }

  // Adds details to the flag just registered.
  class Detail {
   public:
    // The placeholder of the value in help, as HOST:PORT. The default follows from type and name:
    // SECONDS for `lease-s`. Shells complete FILE and DIR.
    Detail& Value(std::string word);
    // The only allowed values.
    Detail& OneOf(std::vector<std::string> values);
    // The flag must be given and not be empty.
    Detail& Required();
    // Shown in help instead of the default, as "the host's name".
    Detail& Default(std::string words);
    // The name of its environment variable, if it does not follow from the flag's name.
    Detail& Environment(std::string variable);

   private:
    friend class FlagSet;
    Detail(FlagSet* set, size_t index) : set_(set), index_(index) {}
    FlagDescription& description() { return set_->description_.flags[index_]; }
    FlagSet* const set_;
    const size_t index_;
  };

  // As typed: "router", "skeinctl status".
  void Name(std::string name) { description_.name = std::move(name); }
  // The prefix of environment variables for flags registered from here on; default: "SKEIN_".
  void EnvironmentPrefix(std::string prefix) { prefix_ = std::move(prefix); }
  void About(std::string about) { description_.about = std::move(about); }
  // The help heading for flags registered from here on.
  void Group(std::string heading) { group_ = std::move(heading); }

  // Registers a flag; *target holds its default until Parse. Targets must outlive Parse and
  // Effective. `help` is one sentence.
  Detail String(std::string* target, std::string name, std::string help);
  Detail Strings(std::vector<std::string>* target, std::string name,
                 std::string help);  // may be repeated
  Detail Int(int64_t* target, std::string name, std::string help, int64_t min, int64_t max);
  Detail Double(double* target, std::string name, std::string help, double min, double max);
  Detail Bool(bool* target, std::string name, std::string help);

  // The next argument that is not a flag. *target must be empty; an optional one may stay so.
  void Positional(std::string* target, std::string name, std::string help = "",
                  std::vector<std::string> choices = {});
  void OptionalPositional(std::string* target, std::string name, std::string help = "",
                          std::vector<std::string> choices = {});
  // All arguments that are not flags and follow the positionals registered so far; may be none.
  // *target must be empty. No positional can be registered after it.
  void RepeatedPositional(std::vector<std::string>* target, std::string name,
                          std::string help = "");

  // A check across flags: runs after each of them is valid by itself.
  void Check(std::function<absl::Status()> check) { checks_.push_back(std::move(check)); }

  // Applies file, environment and command line. INVALID_ARGUMENT lists every problem, one per line.
  // --help and --version return CANCELLED with the text to print as message.
  absl::Status Parse(int argc, const char* const* argv,
                     const std::map<std::string, std::string>& environment);

  // Environment variables with the right prefix that match no flag but nearly do, each with the
  // variable that was probably meant. After Parse. Names that are close to none may belong to other
  // programs.
  struct Mistyped {
    std::string variable, closest;
  };
  std::vector<Mistyped> MistypedVariables(
      const std::map<std::string, std::string>& environment) const;

  // The effective values as one JSON object, for the log at start.
  std::string EffectiveJson() const;
  std::string Help() const { return HelpText(Describe()); }
  // Includes the flags that every program has.
  CommandDescription Describe() const;
  const std::string& name() const { return description_.name; }

 private:
  struct Flag {
    std::function<absl::Status(std::string_view)> set;
    std::function<std::string()> json;
    std::function<void()> clear;  // for repeatable flags
    int strength = 0;  // 0 default, 1 file, 2 environment, 3 command line; the highest wins
  };

  void Complete();  // adds the flags that every program has
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
  std::vector<std::string>* repeated_ = nullptr;  // what follows them; null: nothing may
  std::vector<std::function<absl::Status()>> checks_;
  std::string group_ = "Flags";
  std::string prefix_ = "SKEIN_";
  std::string config_;
  bool complete_ = false;
};

// The process's environment as a map.
std::map<std::string, std::string> EnvironmentMap();

}  // namespace skein::services
