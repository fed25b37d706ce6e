#include "services/flags/flags.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstring>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "nlohmann/json.hpp"
#include "services/base/version.h"
#include "services/flags/closest_name.h"
#include "yaml-cpp/yaml.h"

namespace skein::services {
namespace {

constexpr int kFile = 1, kEnvironment = 2, kCommandLine = 3;

std::string Hyphenated(std::string_view name) {
  return absl::StrReplaceAll(absl::string_view(name.data(), name.size()), {{"_", "-"}});
}

std::string EnvironmentName(std::string name, std::string_view flag) {
  for (char c : flag) {
    name += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  return name;
}

// The placeholder of a flag's value, from the unit at the end of its name.
std::string ValueWord(std::string_view name, std::string_view otherwise) {
  constexpr std::pair<std::string_view, std::string_view> kWords[] = {
      {"port", "PORT"},    {"-s", "SECONDS"}, {"-ms", "MILLISECONDS"}, {"-us", "MICROSECONDS"},
      {"-bytes", "BYTES"}, {"-gib", "GIB"},   {"-file", "FILE"},       {"-dir", "DIR"}};
  for (const auto& [end, word] : kWords) {
    if (name.ends_with(end)) return std::string(word);
  }
  return std::string(otherwise);
}

// 2^30 is easier to read than 1073741824.
std::string ShortNumber(int64_t value) {
  const auto bits = static_cast<uint64_t>(value);
  if (value < int64_t{1} << 20 || (bits & (bits - 1)) != 0) return std::to_string(value);
  return absl::StrCat("2^", __builtin_ctzll(bits));
}

// A JSON value as a user would type it.
std::string DefaultText(const std::string& json) {
  if (json == "\"\"" || json == "[]") return "";
  if (json.size() > 1 && json.front() == '"') return json.substr(1, json.size() - 2);
  return json;
}

template <typename T>
absl::Status InRange(T value, T min, T max) {
  if (value >= min && value <= max) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("must be between ", min, " and ", max));
}

// Without choices, every value is valid.
absl::Status CheckChoice(std::string_view value, const std::vector<std::string>& choices) {
  if (choices.empty() || std::find(choices.begin(), choices.end(), value) != choices.end()) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError("is not one of " + absl::StrJoin(choices, ", ") +
                                    DidYouMean(value, choices));
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

FlagSet::Detail& FlagSet::Detail::Value(std::string word) {
  description().value = std::move(word);
  return *this;
}

FlagSet::Detail& FlagSet::Detail::OneOf(std::vector<std::string> values) {
  description().choices = std::move(values);
  return *this;
}

FlagSet::Detail& FlagSet::Detail::Required() {
  description().required = true;
  return *this;
}

FlagSet::Detail& FlagSet::Detail::Default(std::string words) {
  description().default_text = std::move(words);
  return *this;
}

FlagSet::Detail& FlagSet::Detail::Environment(std::string variable) {
  description().environment = std::move(variable);
  return *this;
}

FlagSet::Detail FlagSet::Add(FlagDescription description, Flag flag) {
  description.name = Hyphenated(description.name);
  description.group = group_;
  description.environment = EnvironmentName(prefix_, description.name);
  description.default_text = DefaultText(flag.json());
  if (description.value == "TEXT") description.value = ValueWord(description.name, "TEXT");
  if (description.value == "NUMBER") description.value = ValueWord(description.name, "NUMBER");
  description_.flags.push_back(std::move(description));
  flags_.push_back(std::move(flag));
  return Detail(this, flags_.size() - 1);
}

void FlagSet::Positional(std::string* target, std::string name, std::string help,
                         std::vector<std::string> choices) {
  positionals_.push_back(target);
  description_.positionals.push_back(
      {.name = std::move(name), .help = std::move(help), .choices = std::move(choices)});
}

void FlagSet::OptionalPositional(std::string* target, std::string name, std::string help,
                                 std::vector<std::string> choices) {
  Positional(target, std::move(name), std::move(help), std::move(choices));
  description_.positionals.back().required = false;
}

void FlagSet::RepeatedPositional(std::vector<std::string>* target, std::string name,
                                 std::string help) {
  repeated_ = target;
  description_.positionals.push_back({.name = std::move(name),
                                      .help = std::move(help),
                                      .required = false,
                                      .choices = {},
                                      .repeatable = true});
}

FlagSet::Detail FlagSet::String(std::string* target, std::string name, std::string help) {
  return Add({.name = std::move(name), .value = "TEXT", .help = std::move(help)},
             {.set =
                  [target](std::string_view value) {
                    *target = std::string(value);
                    return absl::OkStatus();
                  },
              .json = [target] { return nlohmann::json(*target).dump(); }});
}

FlagSet::Detail FlagSet::Strings(std::vector<std::string>* target, std::string name,
                                 std::string help) {
  return Add(
      {.name = std::move(name), .value = "TEXT", .help = std::move(help), .repeatable = true},
      {.set =
           [target](std::string_view value) {
             target->emplace_back(value);
             return absl::OkStatus();
           },
       .json = [target] { return nlohmann::json(*target).dump(); },
       .clear = [target] { target->clear(); }});
}

FlagSet::Detail FlagSet::Int(int64_t* target, std::string name, std::string help, int64_t min,
                             int64_t max) {
  return Add({.name = std::move(name),
              .value = "NUMBER",
              .help = std::move(help),
              .limits = absl::StrCat(ShortNumber(min), " to ", ShortNumber(max))},
             {.set = [=](std::string_view value) { return ParseInt(value, min, max, target); },
              .json = [target] { return std::to_string(*target); }});
}

FlagSet::Detail FlagSet::Double(double* target, std::string name, std::string help, double min,
                                double max) {
  return Add({.name = std::move(name),
              .value = "NUMBER",
              .help = std::move(help),
              .limits = absl::StrCat(min, " to ", max)},
             {.set = [=](std::string_view value) { return ParseDouble(value, min, max, target); },
              .json = [target] { return nlohmann::json(*target).dump(); }});
}

FlagSet::Detail FlagSet::Bool(bool* target, std::string name, std::string help) {
  return Add({.name = std::move(name), .help = std::move(help)},
             {.set = [target](std::string_view value) { return ParseBool(value, target); },
              .json = [target] { return *target ? "true" : "false"; }});
}

size_t FlagSet::Find(std::string_view name) const {
  const std::string wanted = Hyphenated(name);
  const auto& flags = description_.flags;
  return static_cast<size_t>(std::find_if(flags.begin(), flags.end(),
                                          [&](const auto& one) { return one.name == wanted; }) -
                             flags.begin());
}

void FlagSet::Apply(size_t index, std::string_view value, int strength, std::string_view source,
                    std::vector<std::string>* problems) {
  Flag& flag = flags_[index];
  if (strength < flag.strength) return;
  if (flag.clear && strength > flag.strength) flag.clear();
  flag.strength = strength;
  const absl::Status choice = CheckChoice(value, description_.flags[index].choices);
  const absl::Status status = choice.ok() ? flag.set(value) : choice;
  if (status.ok()) return;
  problems->push_back(absl::StrCat(std::string(source), ": '", std::string(value), "' ",
                                   std::string(status.message())));
}

void FlagSet::ApplyArguments(const ParsedArguments& parsed, std::vector<std::string>* problems) {
  *problems = parsed.problems;
  for (size_t i = 0; i < flags_.size(); ++i) {
    for (const std::string& value : parsed.flags[i]) {
      Apply(i, value, kCommandLine, "--" + description_.flags[i].name, problems);
    }
  }
  ApplyPositionals(parsed, problems);
}

void FlagSet::ApplyPositionals(const ParsedArguments& parsed, std::vector<std::string>* problems) {
  for (size_t i = 0; i < parsed.positionals.size(); ++i) {
    if (i >= positionals_.size()) {
      repeated_->push_back(parsed.positionals[i]);
      continue;
    }
    *positionals_[i] = parsed.positionals[i];
    const PositionalDescription& positional = description_.positionals[i];
    const absl::Status choice = CheckChoice(parsed.positionals[i], positional.choices);
    if (choice.ok()) continue;
    problems->push_back(
        absl::StrCat(positional.name, ": '", parsed.positionals[i], "' ", choice.message()));
  }
}

void FlagSet::ApplyEnvironment(const std::map<std::string, std::string>& environment,
                               std::vector<std::string>* problems) {
  for (size_t i = 0; i < flags_.size(); ++i) {
    const std::string& name = description_.flags[i].environment;
    if (auto it = environment.find(name); it != environment.end()) {
      Apply(i, it->second, kEnvironment, name, problems);
    }
  }
}

void FlagSet::ApplyFile(const std::string& path, std::vector<std::string>* problems) {
  const std::string file = "--config: '" + path + "': ";
  std::vector<std::string> names;
  for (const FlagDescription& flag : description_.flags) names.push_back(flag.name);
  try {
    const YAML::Node root = YAML::LoadFile(path);
    if (root.IsNull()) return;  // an empty file
    if (!root.IsMap()) return problems->push_back(file + "is not a map of flags");
    for (const auto& entry : root) {
      const std::string key = entry.first.as<std::string>();
      const size_t index = Find(key);
      if (index == flags_.size()) {
        problems->push_back(file + "unknown key '" + key + "'" + DidYouMean(key, names));
      } else if (entry.second.IsSequence() && description_.flags[index].repeatable) {
        for (const auto& item : entry.second) {
          Apply(index, item.as<std::string>(), kFile, file + key, problems);
        }
      } else if (!entry.second.IsScalar()) {
        problems->push_back(file + key + ": is not a single value");
      } else {
        Apply(index, entry.second.as<std::string>(), kFile, file + key, problems);
      }
    }
  } catch (const YAML::BadFile&) {
    problems->push_back(file + "cannot be read");
  } catch (const YAML::Exception& error) {
    problems->push_back(file + error.what());
  }
}

void FlagSet::CheckRequired(std::vector<std::string>* problems) const {
  for (size_t i = 0; i < positionals_.size(); ++i) {
    const PositionalDescription& positional = description_.positionals[i];
    if (positional.required && positionals_[i]->empty()) {
      problems->push_back(positional.name + " is required");
    }
  }
  for (size_t i = 0; i < flags_.size(); ++i) {
    if (!description_.flags[i].required) continue;
    const std::string value = flags_[i].json();
    if (flags_[i].strength > 0 && value != "\"\"" && value != "[]") continue;
    problems->push_back("--" + description_.flags[i].name + " is required");
  }
}

void FlagSet::Complete() {
  if (std::exchange(complete_, true)) return;
  Group("General");
  String(&config_, "config", "YAML file of flag values, one per line, such as `port: 8000`.")
      .Value("FILE");
}

absl::Status FlagSet::Parse(int argc, const char* const* argv,
                            const std::map<std::string, std::string>& environment) {
  Complete();
  const ParsedArguments parsed = ParseArguments(description_, argc, argv);
  if (parsed.help) return absl::CancelledError(Help());
  if (parsed.version) return absl::CancelledError(VersionText(name()) + "\n");
  std::vector<std::string> problems;
  ApplyArguments(parsed, &problems);
  ApplyEnvironment(environment, &problems);
  if (!config_.empty()) ApplyFile(config_, &problems);
  CheckRequired(&problems);
  if (problems.empty()) {
    for (const auto& check : checks_) {
      if (const absl::Status s = check(); !s.ok()) problems.emplace_back(s.message());
    }
  }
  if (problems.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrJoin(problems, "\n"));
}

std::vector<FlagSet::Mistyped> FlagSet::MistypedVariables(
    const std::map<std::string, std::string>& environment) const {
  // Compared without the common prefix, because the allowed distance depends on the length.
  std::vector<std::string> names;
  for (const FlagDescription& flag : description_.flags) {
    if (!flag.environment.starts_with(prefix_)) continue;
    names.push_back(flag.environment.substr(prefix_.size()));
  }
  std::vector<Mistyped> mistyped;
  for (const auto& [variable, value] : environment) {
    if (!variable.starts_with(prefix_)) continue;
    const std::string name = variable.substr(prefix_.size());
    const std::string closest = ClosestName(name, names);
    if (!closest.empty() && closest != name) mistyped.push_back({variable, prefix_ + closest});
  }
  return mistyped;
}

CommandDescription FlagSet::Describe() const {
  FlagSet copy(*this);
  copy.Complete();
  return copy.description_;
}

std::string FlagSet::EffectiveJson() const {
  std::string json = "{";
  for (size_t i = 0; i < flags_.size(); ++i) {
    absl::StrAppend(&json, i > 0 ? "," : "", "\"", description_.flags[i].name,
                    "\":", flags_[i].json());
  }
  return json + "}";
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
