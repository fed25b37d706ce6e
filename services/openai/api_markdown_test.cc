#include "services/openai/api_markdown.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

namespace skein::services::openai {
namespace {

TEST(ApiMarkdownTest, DocsHaveTheTablesOfNow) {
  std::ostringstream page;
  page << std::ifstream("docs/api.md").rdbuf();
  ASSERT_FALSE(page.str().empty());
  EXPECT_EQ(page.str(), WithTables(page.str()))
      << "docs/api.md is out of date: bazel run //services/openai:api_docs";
}

TEST(ApiMarkdownTest, PagesWithoutTheLinesAreLeftAlone) {
  EXPECT_EQ(WithTables("text"), "");
  const std::string page =
      std::string(kTablesBegin) + "<stale>" + std::string(kTablesEnd) + "after";
  EXPECT_EQ(WithTables(page).find("<stale>"), std::string::npos);
  EXPECT_NE(WithTables(page).find("after"), std::string::npos);
}

}  // namespace
}  // namespace skein::services::openai
