#include "services/skeinctl/terminal/progress.h"

#include <algorithm>
#include <string>

#include "gtest/gtest.h"

namespace skein::services {
namespace {

std::string Written(bool terminal, int steps) {
  FILE* file = std::tmpfile();
  {
    Progress progress("profile", steps, file, terminal);
    for (int i = 0; i < steps; ++i) progress.Step("prompt " + std::to_string(i));
  }
  std::rewind(file);
  std::string text(100'000, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), file));
  std::fclose(file);
  return text;
}

TEST(Progress, IsAFewWholeLinesInAFile) {
  const std::string text = Written(false, 200);
  EXPECT_EQ(text.find('\r'), std::string::npos);
  EXPECT_EQ(text.find('\033'), std::string::npos);
  EXPECT_EQ(text.rfind("profile: 1 of 200: prompt 0\n", 0), 0u) << text;
  EXPECT_NE(text.find("profile: 200 of 200: prompt 199\n"), std::string::npos) << text;
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 11) << text;
  const std::string few = Written(false, 4);
  EXPECT_EQ(std::count(few.begin(), few.end(), '\n'), 4) << few;
}

TEST(Progress, AStepMayHaveNoText) {
  FILE* file = std::tmpfile();
  { Progress("requests ended", 2, file, false).Step(""); }
  std::rewind(file);
  char text[64] = {};
  EXPECT_STREQ(std::fgets(text, sizeof text, file), "requests ended: 1 of 2\n");
  std::fclose(file);
}

TEST(Progress, RewritesOneLineOfATerminal) {
  const std::string text = Written(true, 30);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 0) << text;
  EXPECT_EQ(std::count(text.begin(), text.end(), '\r'), 31) << text;
}

}  // namespace
}  // namespace skein::services
