#include "services/flags/flag_parser.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "services/flags/closest_name.h"

namespace skein::services {
namespace {

constexpr int kColumns = 90;
constexpr char kNoValue[] = "\x01";  // CLI11's result for a flag without its value

// Skein's help layout: one flag per line, its text below.
class HelpFormatter : public CLI::Formatter {
 public:
  explicit HelpFormatter(std::string usage) : usage_(std::move(usage)) {}

  std::string make_help(const CLI::App* app, std::string, CLI::AppFormatMode) const override {
    std::string text;
    for (const absl::string_view line : absl::StrSplit(app->get_description(), '\n')) {
      const bool verbatim = line.empty() || line.front() == ' ';
      text += verbatim ? absl::StrCat(line, "\n") : Wrapped(std::string(line), 0, kColumns);
    }
    absl::StrAppend(&text, "\nUsage: ", usage_, "\n");
    const auto positional = [](const CLI::Option* one) { return one->get_positional(); };
    text += make_group("Arguments", true, app->get_options(positional));
    for (const std::string& group : app->get_groups()) {
      text += make_group(group, false, app->get_options([&](const CLI::Option* one) {
        return one->get_group() == group && !one->get_positional();
      }));
    }
    return text;
  }
  std::string make_group(std::string group, bool positional,
                         std::vector<const CLI::Option*> options) const override {
    std::string text = options.empty() ? "" : "\n" + group + ":\n";
    for (const CLI::Option* option : options) text += make_option(option, positional);
    return text;
  }
  std::string make_option(const CLI::Option* option, bool positional) const override {
    std::string name = option->get_name(positional);
    if (!positional && !option->get_type_name().empty()) name += " " + option->get_type_name();
    const std::string text = option->get_description();
    return "  " + name + "\n" + (text.empty() ? "" : Wrapped(text, 6, kColumns));
  }

 private:
  const std::string usage_;
};

std::string Usage(const CommandDescription& command) {
  std::string usage = command.name;
  for (const PositionalDescription& positional : command.positionals) {
    absl::StrAppend(&usage, positional.required ? " " : " [", positional.name,
                    positional.repeatable ? "..." : "", positional.required ? "" : "]");
  }
  for (const FlagDescription& flag : command.flags) {
    if (flag.required) absl::StrAppend(&usage, " --", flag.name, " ", flag.value);
  }
  return usage + " [flags]";
}

// The description as a CLI11 parser. [flags] and [positionals] are in the description's order.
struct Application {
  CLI::App app;
  std::vector<CLI::Option*> flags;
  std::vector<CLI::Option*> positionals;

  explicit Application(const CommandDescription& command) : app(command.about) {
    app.formatter(std::make_shared<HelpFormatter>(Usage(command)));
    app.allow_extras();
    app.set_help_flag();
    for (const PositionalDescription& positional : command.positionals) {
      positionals.push_back(app.add_option(positional.name)->description(positional.help));
      if (!positional.repeatable) continue;
      positionals.back()->expected(1, -1)->allow_extra_args()->multi_option_policy(
          CLI::MultiOptionPolicy::TakeAll);
    }
    for (const FlagDescription& flag : command.flags) Add(flag);
    app.set_help_flag("-h,--help", "Print this text and exit.")->group("General");
    app.set_version_flag("--version", "", "Print the version and exit.")->group("General");
  }

  void Add(const FlagDescription& flag) {
    const std::string name = "--" + flag.name;
    CLI::Option* option = flag.value.empty() ? app.add_flag(name) : app.add_option(name);
    const std::string details = DetailsOf(flag);
    option->description(details.empty() ? flag.help : absl::StrCat(flag.help, " [", details, "]"));
    option->group(flag.group);
    option->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
    if (!flag.value.empty()) {
      // A missing value is one problem among others, not a CLI11 exception.
      option->type_name(flag.value)->expected(0, 1)->default_str(kNoValue);
    }
    flags.push_back(option);
  }
};

// In names, '_' means '-'. An empty value is a value: "--node=" is "--node" "".
std::vector<std::string> Folded(const CommandDescription& command,
                                const std::vector<std::string>& arguments) {
  std::vector<std::string> folded;
  for (std::string argument : arguments) {
    if (!argument.starts_with("--")) {
      folded.push_back(std::move(argument));
      continue;
    }
    const size_t equals = std::min(argument.find('='), argument.size());
    std::replace(argument.begin(), argument.begin() + static_cast<std::ptrdiff_t>(equals), '_',
                 '-');
    const auto flag =
        std::find_if(command.flags.begin(), command.flags.end(), [&](const FlagDescription& one) {
          return !one.value.empty() && argument == "--" + one.name + "=";
        });
    if (flag == command.flags.end()) {
      folded.push_back(std::move(argument));
    } else {
      folded.push_back("--" + flag->name);
      folded.emplace_back();
    }
  }
  return folded;
}

void NameExtras(const CommandDescription& command, const std::vector<std::string>& extras,
                std::vector<std::string>* problems) {
  std::vector<std::string> names = {"--help", "--version"};
  for (const FlagDescription& flag : command.flags) names.push_back("--" + flag.name);
  bool its_value = false;  // of the unknown flag before it
  for (const std::string& extra : extras) {
    const bool flag = extra.size() > 1 && extra.front() == '-';
    if (flag) {
      const std::string name = extra.substr(0, extra.find('='));
      problems->push_back(absl::StrCat("unknown flag '", name, "'", DidYouMean(name, names)));
    } else if (!its_value) {
      problems->push_back(absl::StrCat("unexpected argument '", extra, "'"));
    }
    its_value = flag && extra.find('=') == std::string::npos;
  }
}

}  // namespace

ParsedArguments ParseArguments(const CommandDescription& command, int argc,
                               const char* const* argv) {
  Application application(command);
  ParsedArguments parsed;
  parsed.flags.resize(command.flags.size());
  const std::vector<std::string> all(argv + std::min(argc, 1), argv + argc);
  // Arguments after "--" are never flags. CLI11 2.1 forgets this after a flag whose value may be
  // missing.
  const auto end_of_flags = std::find(all.begin(), all.end(), "--");
  std::vector<std::string> arguments = Folded(command, {all.begin(), end_of_flags});
  std::reverse(arguments.begin(), arguments.end());
  try {
    application.app.parse(arguments);
  } catch (const CLI::CallForHelp&) {
    parsed.help = true;
    return parsed;
  } catch (const CLI::CallForVersion&) {
    parsed.version = true;
    return parsed;
  } catch (const CLI::Error& error) {
    parsed.problems.emplace_back(error.what());
  }
  for (size_t i = 0; i < command.flags.size(); ++i) {
    for (const std::string& value : application.flags[i]->results()) {
      if (value == kNoValue) {
        parsed.problems.push_back(absl::StrCat("--", command.flags[i].name, ": needs a value"));
      } else {
        parsed.flags[i].push_back(value);
      }
    }
  }
  for (const CLI::Option* positional : application.positionals) {
    for (const std::string& value : positional->results()) parsed.positionals.push_back(value);
  }
  const bool repeats = !command.positionals.empty() && command.positionals.back().repeatable;
  NameExtras(command, application.app.remaining(), &parsed.problems);
  for (auto more = end_of_flags; more != all.end(); ++more) {
    if (more == end_of_flags) continue;
    if (repeats || parsed.positionals.size() < command.positionals.size()) {
      parsed.positionals.push_back(*more);
    } else {
      parsed.problems.push_back(absl::StrCat("unexpected argument '", *more, "'"));
    }
  }
  return parsed;
}

std::string HelpText(const CommandDescription& command) {
  const Application application(command);
  return application.app.help();
}

std::string DetailsOf(const FlagDescription& flag) {
  std::vector<std::string> details;
  if (flag.required) details.emplace_back("required");
  if (flag.repeatable) details.emplace_back("repeatable");
  if (!flag.default_text.empty()) details.push_back("default " + flag.default_text);
  if (!flag.choices.empty()) details.push_back("one of " + absl::StrJoin(flag.choices, ", "));
  if (!flag.limits.empty()) details.push_back(flag.limits);
  if (!flag.environment.empty()) details.push_back(flag.environment);
  return absl::StrJoin(details, "; ");
}

std::string Wrapped(const std::string& text, int indent, int width) {
  const std::string margin(static_cast<size_t>(indent), ' ');
  std::string out, line;
  for (const absl::string_view word : absl::StrSplit(text, ' ', absl::SkipEmpty())) {
    if (!line.empty() && line.size() + word.size() + 1 > static_cast<size_t>(width)) {
      out += line + "\n";
      line.clear();
    }
    absl::StrAppend(&line, line.empty() ? margin : " ", word);
  }
  return out + line + "\n";
}

}  // namespace skein::services
