#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "services/base/version.h"
#include "services/skeinctl/exit_codes.h"
#include "services/skeinctl/reference/reference.h"

namespace skein::services {
namespace {

// Page text: escapes '-' and '\', and lines that roff would take for a request. A line may end
// after a comma: some lists are longer than a line.
std::string Roff(absl::string_view text) {
  const std::string escaped =
      absl::StrReplaceAll(text, {{"\\", "\\e"}, {"-", "\\-"}, {", ", ", "}, {",", ",\\:"}});
  const bool request = !escaped.empty() && (escaped[0] == '.' || escaped[0] == '\'');
  return request ? "\\&" + escaped : escaped;
}

std::string PageName(const CommandDescription& command) {
  return absl::StrReplaceAll(command.name, {{" ", "-"}, {"_", "-"}});
}

std::string Heading(const std::string& page, int section) {
  return absl::StrCat(".TH ", absl::AsciiStrToUpper(page), " ", section, " \"\" \"Skein ", kVersion,
                      "\" \"Skein\"\n");
}

// The paragraphs after the summary. Lines that begin with a space are printed verbatim.
std::string Description(const CommandDescription& command) {
  std::string text = ".SH DESCRIPTION\n" + Roff(command.Summary()) + "\n";
  const std::vector<std::string> lines = absl::StrSplit(command.about, '\n');
  bool verbatim = false;
  for (size_t i = 1; i < lines.size(); ++i) {
    const bool as_it_is = !lines[i].empty() && lines[i][0] == ' ';
    if (as_it_is != verbatim) text += as_it_is ? ".nf\n" : ".fi\n";
    verbatim = as_it_is;
    text += lines[i].empty() ? ".PP\n" : Roff(lines[i]) + "\n";
  }
  return text + (verbatim ? ".fi\n" : "");
}

std::string Synopsis(const CommandDescription& command) {
  std::string text = absl::StrCat(".SH SYNOPSIS\n.B ", Roff(command.name), "\n");
  for (const PositionalDescription& positional : command.positionals) {
    absl::StrAppend(&text, positional.required ? "" : "[", "\\fI", Roff(positional.name), "\\fR",
                    positional.repeatable ? " ..." : "", positional.required ? "" : "]", "\n");
  }
  for (const FlagDescription& flag : command.flags) {
    if (!flag.required) continue;
    absl::StrAppend(&text, "\\fB", Roff("--" + flag.name), "\\fR \\fI", Roff(flag.value), "\\fR\n");
  }
  return text + "[flags]\n";
}

std::string Options(const CommandDescription& command) {
  std::string text;
  if (!command.positionals.empty()) text += ".SH ARGUMENTS\n";
  for (const PositionalDescription& positional : command.positionals) {
    absl::StrAppend(&text, ".TP\n\\fI", Roff(positional.name), "\\fR\n", Roff(positional.help),
                    "\n");
  }
  text += ".SH OPTIONS\n";
  std::string group;
  for (const FlagDescription& flag : command.flags) {
    if (flag.group != group) absl::StrAppend(&text, ".SS ", Roff(flag.group), "\n");
    group = flag.group;
    absl::StrAppend(&text, ".TP\n\\fB", Roff("--" + flag.name), "\\fR");
    if (!flag.value.empty()) absl::StrAppend(&text, " \\fI", Roff(flag.value), "\\fR");
    const std::string details = DetailsOf(flag);
    absl::StrAppend(&text, "\n", Roff(flag.help), details.empty() ? "" : " [" + Roff(details) + "]",
                    "\n");
  }
  return absl::StrCat(text, ".TP\n\\fB\\-\\-help\\fR\nPrint the help and exit.\n",
                      ".TP\n\\fB\\-\\-version\\fR\nPrint the version and exit.\n");
}

// `prefix`: of the environment variables.
std::string Environment(absl::string_view prefix) {
  return absl::StrCat(".SH ENVIRONMENT\nEvery flag has an environment variable: ", prefix,
                      " and its name in capitals, with \\(lq_\\(rq for \\(lq\\-\\(rq.\n"
                      "The command line overrides the environment, and the environment "
                      "overrides the file of \\fB\\-\\-config\\fR.\n");
}

std::string Page(const CommandDescription& command, int section, const std::string& page,
                 const std::string& exit_status, const std::string& see_also) {
  return absl::StrCat(Heading(page, section), ".SH NAME\n", Roff(page), " \\- ",
                      Roff(command.Summary()), "\n", Synopsis(command), Description(command),
                      Options(command), Environment(section == 8 ? "SKEIN_" : "SKEINCTL_"),
                      ".SH EXIT STATUS\n", exit_status, ".SH SEE ALSO\n", see_also, "\n");
}

constexpr char kServiceExit[] =
    "0 after SIGTERM or SIGINT; 1 if the orchestrator refused this worker; 2 if the service could "
    "not "
    "start, with each reason as a line of plain text on standard error; 3 if this worker's "
    "engine failed.\n"
    "Afterwards standard error is the log: one JSON object per line.\n";

std::string CommandExit() {
  std::string text;
  for (const ExitCodeMeaning& one : kExitCodes) {
    absl::StrAppend(&text, ".TP\n", one.code, "\n", Roff(one.meaning), ".\n");
  }
  return text + ".PP\nErrors are lines on standard error.\n";
}

std::string Overview(const Reference& reference) {
  std::string text = absl::StrCat(
      Heading("skeinctl", 1),
      ".SH NAME\nskeinctl \\- the operator's command line for a Skein cluster\n"
      ".SH SYNOPSIS\n.B skeinctl\n\\fICOMMAND\\fR [arguments and flags]\n.SH COMMANDS\n");
  for (const CommandDescription& command : reference.commands) {
    absl::StrAppend(&text, ".TP\n.BR ", Roff(PageName(command)), " (1)\n", Roff(command.Summary()),
                    "\n");
  }
  return absl::StrCat(text, ".SH EXIT STATUS\n", CommandExit(), ".SH SEE ALSO\n",
                      ".BR skein\\-router (8)\n");
}

}  // namespace

std::map<std::string, std::string> ManPages(const Reference& reference) {
  std::map<std::string, std::string> pages;
  pages["skeinctl.1"] = Overview(reference);
  for (const CommandDescription& command : reference.commands) {
    const std::string page = PageName(command);
    pages[page + ".1"] = Page(command, 1, page, CommandExit(), ".BR skeinctl (1)");
  }
  for (const CommandDescription& service : reference.services) {
    const std::string page = "skein-" + PageName(service);
    CommandDescription installed = service;  // packages install it under its page's name
    installed.name = page;
    pages[page + ".8"] = Page(installed, 8, page, kServiceExit, ".BR skeinctl (1)");
  }
  return pages;
}

}  // namespace skein::services
