#include "services/orchestrator/generation_file.h"

#include <filesystem>
#include <fstream>

#include "gtest/gtest.h"

namespace skein::services {
namespace {

class GenerationFileTest : public ::testing::Test {
 protected:
  GenerationFileTest() { std::filesystem::remove_all(folder_); }
  void Write(const std::string& text) { std::ofstream(folder_ + "/generation") << text; }
  uint64_t Next() {
    const auto next = NextGeneration(folder_);
    EXPECT_TRUE(next.ok()) << next.status();
    return next.value_or(0);
  }
  const std::string folder_ = ::testing::TempDir() + "/state/of/orchestrator";
};

TEST_F(GenerationFileTest, GrowsWithEachStart) {
  EXPECT_EQ(Next(), 1u);  // the folder is made
  EXPECT_EQ(Next(), 2u);
  EXPECT_TRUE(StoreGeneration(folder_, 7).ok());
  EXPECT_EQ(Next(), 8u);
}

TEST_F(GenerationFileTest, AFileThatIsLostOrBrokenStartsAnew) {
  EXPECT_EQ(Next(), 1u);
  EXPECT_EQ(Next(), 2u);
  std::filesystem::remove(folder_ + "/generation");
  EXPECT_EQ(Next(), 1u);
  for (const char* text : {"", "no number", "-1", "8388606", "18446744073709551615"}) {
    Write(text);
    EXPECT_EQ(Next(), 1u) << text;
  }
}

TEST_F(GenerationFileTest, AFolderThatCannotBeUsedIsNamed) {
  const std::string file = ::testing::TempDir() + "/no-folder";
  std::ofstream(file) << "x";
  const auto next = NextGeneration(file + "/below");
  EXPECT_EQ(next.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(next.status().message().find("--state-dir"), absl::string_view::npos) << next.status();
}

}  // namespace
}  // namespace skein::services
