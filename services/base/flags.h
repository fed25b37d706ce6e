// Flags of a Skein binary. Every flag `--name` has an environment twin `SKEIN_NAME` ('-' becomes
// '_') and may stand in a YAML file given by `--config`; a flag on the command line wins over the
// environment, the environment over the file. In names '-' and '_' are one. Unknown flags, unknown
// SKEIN_* variables' values that do not parse, and unknown keys of the file are errors that name
// the key and the value. All problems are reported at once, not one a run.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

namespace skein::services {

class FlagSet {
 public:
  // `about` is one sentence for --help.
  explicit FlagSet(std::string about) : about_(std::move(about)) {}

  // Registers a flag; *target keeps its default until Parse. Targets must outlive Parse and
  // Effective.
  void String(std::string* target, std::string name, std::string help);
  void Strings(std::vector<std::string>* target, std::string name, std::string help);  // repeatable
  void Int(int64_t* target, std::string name, std::string help, int64_t min, int64_t max);
  void Double(double* target, std::string name, std::string help, double min, double max);
  void Bool(bool* target, std::string name, std::string help);

  // The one argument that is no flag; it must be given. *target is empty until Parse.
  void Positional(std::string* target, std::string name);

  // Applies file, environment and command line. INVALID_ARGUMENT lists every problem, one a line.
  // Returns CANCELLED with the help text as message when --help was given.
  absl::Status Parse(int argc, const char* const* argv,
                     const std::map<std::string, std::string>& environment);

  // The values in force as one JSON object, for the log at start.
  std::string EffectiveJson() const;
  std::string Help() const;

 private:
  struct Flag {
    std::string name;
    std::string help;
    std::function<absl::Status(std::string_view)> set;
    std::function<std::string()> json;
    bool is_bool = false;
    bool repeatable = false;
    int strength =
        0;  // 0 default, 1 file, 2 environment, 3 command line: the strongest source stays
    std::function<void()> clear;
  };

  void Add(Flag flag);
  Flag* Find(std::string_view name);
  void Apply(Flag* flag, std::string_view value, int strength, std::string_view source,
             std::vector<std::string>* problems);
  void ApplyFile(const std::string& path, std::vector<std::string>* problems);
  void ApplyArguments(int argc, const char* const* argv, std::vector<std::string>* problems);

  std::string about_;
  std::string* positional_ = nullptr;
  std::string positional_name_;
  std::string config_;
  bool help_ = false;
  std::vector<Flag> flags_;
};

// The process's environment as a map.
std::map<std::string, std::string> EnvironmentMap();

}  // namespace skein::services
