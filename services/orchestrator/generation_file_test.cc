#include "services/orchestrator/generation_file.h"

#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <string>

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

TEST_F(GenerationFileTest, AKeeperStoresTheLastNumberBeforeItEnds) {
  EXPECT_EQ(Next(), 1u);
  {
    GenerationKeeper keeper(folder_);
    for (uint64_t generation = 2; generation <= 9; ++generation) keeper.Keep(generation);
  }
  EXPECT_EQ(Next(), 10u);
  GenerationKeeper nowhere("");
  nowhere.Keep(3);
}

// The file's place is a pipe, which cannot be opened for writing until somebody reads.
TEST_F(GenerationFileTest, AKeeperDoesNotWaitForTheDisk) {
  EXPECT_EQ(Next(), 1u);
  const std::string next = folder_ + "/generation.next";
  ASSERT_EQ(mkfifo(next.c_str(), 0600), 0);
  {
    GenerationKeeper keeper(folder_);
    keeper.Keep(7);
    std::ifstream reader(next);
    std::string text;
    EXPECT_TRUE(std::getline(reader, text));
    EXPECT_EQ(text, "7");
    std::filesystem::remove(next);
  }
  EXPECT_EQ(Next(), 2u) << "a pipe cannot be synced: the former number stays";
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
