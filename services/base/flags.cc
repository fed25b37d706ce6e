#include "services/base/flags.h"

#include <unistd.h>
#include <algorithm>

#include <cctype>
#include <charconv>
#include <cmath>
#include <cstring>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "nlohmann/json.hpp"
#include "yaml-cpp/yaml.h"

namespace skein::services {
namespace {

constexpr int kFile = 1, kEnvironment = 2, kCommandLine = 3;

// '-' and '_' are one.
bool SameName(std::string_view a, std::string_view b) {
  const auto folded = [](char c) { return c == '-' ? '_' : c; };
  return std::ranges::equal(a, b, {}, folded, folded);
}

std::string EnvironmentName(std::string_view flag) {
  std::string name = "SKEIN_";
  for (char c : flag) {
    name += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  return name;
}

template <typename T>
absl::Status InRange(T value, T min, T max) {
  if (value >= min && value <= max) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("must be between ", min, " and ", max));
}

absl::Status ParseInt(std::string_view text, int64_t min, int64_t max, int64_t* out) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    return absl::InvalidArgumentError("is not a whole number");
  }
  absl::Status status = InRange(value, min, max);
  if (status.ok()) *out = value;
  return status;
}

absl::Status ParseDouble(std::string_view text, double min, double max, double* out) {
  double value = 0;
  if (!absl::SimpleAtod(absl::string_view(text.data(), text.size()), &value) ||
      !std::isfinite(value)) {
    return absl::InvalidArgumentError("is not a number");
  }
  absl::Status status = InRange(value, min, max);
  if (status.ok()) *out = value;
  return status;
}

absl::Status ParseBool(std::string_view text, bool* out) {
  if (text == "true" || text == "1" || text == "yes") {
    *out = true;
  } else if (text == "false" || text == "0" || text == "no") {
    *out = false;
  } else {
    return absl::InvalidArgumentError("is not true or false");
  }
  return absl::OkStatus();
}

}  // namespace

void FlagSet::Add(Flag flag) { flags_.push_back(std::move(flag)); }

void FlagSet::Positional(std::string* target, std::string name) {
  positional_ = target;
  positional_name_ = std::move(name);
}

void FlagSet::String(std::string* target, std::string name, std::string help) {
  Add({.name = std::move(name),
       .help = std::move(help),
       .set =
           [target](std::string_view value) {
             *target = std::string(value);
             return absl::OkStatus();
           },
       .json = [target] { return nlohmann::json(*target).dump(); }});
}

void FlagSet::Strings(std::vector<std::string>* target, std::string name, std::string help) {
  Add({.name = std::move(name),
       .help = std::move(help),
       .set =
           [target](std::string_view value) {
             target->emplace_back(value);
             return absl::OkStatus();
           },
       .json = [target] { return nlohmann::json(*target).dump(); },
       .repeatable = true,
       .clear = [target] { target->clear(); }});
}

void FlagSet::Int(int64_t* target, std::string name, std::string help, int64_t min, int64_t max) {
  Add({.name = std::move(name),
       .help = std::move(help),
       .set = [=](std::string_view value) { return ParseInt(value, min, max, target); },
       .json = [target] { return std::to_string(*target); }});
}

void FlagSet::Double(double* target, std::string name, std::string help, double min, double max) {
  Add({.name = std::move(name),
       .help = std::move(help),
       .set = [=](std::string_view value) { return ParseDouble(value, min, max, target); },
       .json = [target] { return nlohmann::json(*target).dump(); }});
}

void FlagSet::Bool(bool* target, std::string name, std::string help) {
  Add({.name = std::move(name),
       .help = std::move(help),
       .set = [target](std::string_view value) { return ParseBool(value, target); },
       .json = [target] { return *target ? "true" : "false"; },
       .is_bool = true});
}

FlagSet::Flag* FlagSet::Find(std::string_view name) {
  for (Flag& flag : flags_) {
    if (SameName(flag.name, name)) return &flag;
  }
  return nullptr;
}

void FlagSet::Apply(Flag* flag, std::string_view value, int strength, std::string_view source,
                    std::vector<std::string>* problems) {
  if (strength < flag->strength) return;
  if (flag->repeatable && strength > flag->strength) flag->clear();
  flag->strength = strength;
  if (absl::Status status = flag->set(value); !status.ok()) {
    problems->push_back(absl::StrCat(std::string(source), ": '", std::string(value), "' ",
                                     std::string(status.message())));
  }
}

void FlagSet::ApplyFile(const std::string& path, std::vector<std::string>* problems) {
  try {
    const YAML::Node root = YAML::LoadFile(path);
    if (!root.IsMap()) {
      problems->push_back(absl::StrCat("--config ", path, ": is not a map of flags"));
      return;
    }
    for (const auto& entry : root) {
      const std::string key = entry.first.as<std::string>();
      Flag* flag = Find(key);
      if (flag == nullptr) {
        problems->push_back(absl::StrCat("--config ", path, ": unknown key '", key, "'"));
        continue;
      }
      const std::string source = absl::StrCat("--config ", path, ": ", key);
      if (entry.second.IsSequence() && flag->repeatable) {
        for (const auto& item : entry.second) {
          Apply(flag, item.as<std::string>(), kFile, source, problems);
        }
      } else {
        Apply(flag, entry.second.as<std::string>(), kFile, source, problems);
      }
    }
  } catch (const YAML::Exception& error) {
    problems->push_back(absl::StrCat("--config ", path, ": ", error.what()));
  }
}

void FlagSet::ApplyArguments(int argc, const char* const* argv,
                             std::vector<std::string>* problems) {
  for (int i = 1; i < argc; ++i) {
    std::string_view argument = argv[i];
    if (argument == "-h") argument = "--help";
    if (!argument.starts_with("--") && positional_ != nullptr && positional_->empty()) {
      *positional_ = std::string(argument);
      continue;
    }
    if (!argument.starts_with("--")) {
      problems->push_back(absl::StrCat("unexpected argument '", std::string(argument), "'"));
      continue;
    }
    std::string_view name = argument.substr(2);
    std::string_view value;
    const size_t equals = name.find('=');
    const bool has_value = equals != std::string_view::npos;
    if (has_value) {
      value = name.substr(equals + 1);
      name = name.substr(0, equals);
    }
    Flag* flag = Find(name);
    if (flag == nullptr) {
      problems->push_back(absl::StrCat("unknown flag '--", std::string(name), "'"));
      if (!has_value && i + 1 < argc && std::strncmp(argv[i + 1], "--", 2) != 0) ++i;
      continue;
    }
    if (!has_value && flag->is_bool) {
      value = "true";
    } else if (!has_value) {
      if (i + 1 == argc) {
        problems->push_back(absl::StrCat("--", std::string(name), ": needs a value"));
        continue;
      }
      value = argv[++i];
    }
    Apply(flag, value, kCommandLine, absl::StrCat("--", std::string(name)), problems);
  }
}

absl::Status FlagSet::Parse(int argc, const char* const* argv,
                            const std::map<std::string, std::string>& environment) {
  Bool(&help_, "help", "print this text and exit");
  String(&config_, "config", "a YAML file of flags");
  std::vector<std::string> problems;
  ApplyArguments(argc, argv, &problems);
  if (help_) return absl::CancelledError(Help());
  for (Flag& flag : flags_) {
    const std::string name = EnvironmentName(flag.name);
    if (auto it = environment.find(name); it != environment.end()) {
      Apply(&flag, it->second, kEnvironment, name, &problems);
    }
  }
  if (!config_.empty()) ApplyFile(config_, &problems);
  if (positional_ != nullptr && positional_->empty()) {
    problems.push_back(absl::StrCat(positional_name_, " is missing"));
  }
  if (problems.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrJoin(problems, "\n"));
}

std::string FlagSet::EffectiveJson() const {
  std::string json = "{";
  for (const Flag& flag : flags_) {
    if (flag.name == "help") continue;
    absl::StrAppend(&json, json.size() > 1 ? "," : "", "\"", flag.name, "\":", flag.json());
  }
  return json + "}";
}

std::string FlagSet::Help() const {
  std::string text = about_ + "\n\n";
  for (const Flag& flag : flags_) {
    absl::StrAppend(&text, "  --", flag.name, " (", EnvironmentName(flag.name),
                    ", default: ", flag.json(), ")\n      ", flag.help, "\n");
  }
  return text;
}

std::map<std::string, std::string> EnvironmentMap() {
  std::map<std::string, std::string> map;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const char* equals = std::strchr(*entry, '=');
    if (equals != nullptr) map[std::string(*entry, equals - *entry)] = equals + 1;
  }
  return map;
}

}  // namespace skein::services
