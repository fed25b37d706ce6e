#include "services/skeinctl/reference/reference.h"

#include "gtest/gtest.h"
#include "services/skeinctl/exit_codes.h"

namespace skein::services {
namespace {

Reference Sample() {
  Reference reference;
  reference.services = {
      {.name = "router",
       .about = "Serves it.\n\nAn example:\n  .dotted\\line",
       .flags = {{.name = "port", .value = "PORT", .help = "Port | [0].", .default_text = "8000"},
                 {.name = "quiet", .help = "Don't speak: 'x'."}}}};
  reference.commands = {
      {.name = "skeinctl status",
       .about = "Show it.",
       .positionals = {{.name = "KIND", .help = "", .choices = {"all", "one"}},
                       {.name = "MORE", .required = false, .choices = {}, .repeatable = true}},
       .flags = {
           {.name = "format", .value = "FORMAT", .help = "How.", .choices = {"table", "json"}}}}};
  return reference;
}

void ExpectHas(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << part << " is not in:\n" << text;
}

TEST(Reference, ManPagesEscapeWhatRoffWouldTakeForItsOwn) {
  const auto pages = ManPages(Sample());
  ASSERT_EQ(pages.size(), 3U);
  const std::string& router = pages.at("skein-router.8");
  ExpectHas(router, "\\fB\\-\\-port\\fR \\fIPORT\\fR\nPort | [0]. [default 8000]\n");
  ExpectHas(router, ".nf\n  .dotted\\eline\n.fi\n");
  ExpectHas(pages.at("skeinctl-status.1"), "skeinctl\\-status \\- Show it.");
  ExpectHas(pages.at("skeinctl.1"), ".BR skeinctl\\-status (1)\nShow it.\n");
}

TEST(Reference, TheTableOfFlagsEscapesItsColumns) {
  const std::string text = FlagsMarkdown(Sample());
  ExpectHas(text, "| `--port PORT` |  | `8000` | Port \\| [0]. |\n");
  ExpectHas(text, "| `--format FORMAT` | `table`, `json` |  | How. |\n");
}

TEST(Reference, ARepeatedArgumentIsCalledSo) {
  ExpectHas(ManPages(Sample()).at("skeinctl-status.1"), "[\\fIMORE\\fR ...]\n");
  ExpectHas(FlagsMarkdown(Sample()), "`MORE` (optional) (may be repeated)\n");
  ExpectHas(*CompletionScript(Sample(), "zsh"), "'*:MORE:_files'");
}

TEST(Reference, EveryExitCodeStandsInHelpManPagesAndTheTableOfFlags) {
  const auto pages = ManPages(Sample());
  for (const ExitCodeMeaning& one : kExitCodes) {
    const std::string code = std::to_string(one.code);
    ExpectHas(ExitCodesHelp(), " " + code + " " + one.brief);
    ExpectHas(FlagsMarkdown(Sample()), "| " + code + " | " + one.meaning + " |\n");
    for (const char* page : {"skeinctl.1", "skeinctl-status.1"}) {
      ExpectHas(pages.at(page), ".TP\n" + code + "\n" + one.meaning + ".\n");
    }
  }
  // Services have their own exit codes.
  EXPECT_EQ(pages.at("skein-router.8").find(kExitCodes[3].meaning), std::string::npos);
}

TEST(Reference, CompletionKnowsShells) {
  for (const char* shell : {"bash", "zsh", "fish"}) {
    const auto script = CompletionScript(Sample(), shell);
    ASSERT_TRUE(script.ok()) << script.status();
    for (const char* word : {"router", "status", "format", "json", "all one"}) {
      ExpectHas(*script, word);
    }
  }
  EXPECT_EQ(CompletionScript(Sample(), "tcsh").status().message(),
            "SHELL: 'tcsh' is not bash, zsh or fish");
}

}  // namespace
}  // namespace skein::services
