// Waiting for a folder that is filled piece by piece.
#include "services/admin/model_wait.h"

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace skein::services {
namespace {

namespace fs = std::filesystem;

void Write(const fs::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

// A safetensors file of one tensor of 8 bytes.
std::string Shard() {
  const std::string header = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  std::string text(8, '\0');
  text[0] = static_cast<char>(header.size());
  return text + header + "12345678";
}

class ModelWaitTest : public ::testing::Test {
 protected:
  ModelWaitTest() { fs::create_directories(folder_); }
  ~ModelWaitTest() override { fs::remove_all(folder_); }

  std::string Missing(engine::CheckpointParts parts = {}) {
    return std::string(engine::CheckCheckpointFiles(folder_.string(), parts).message());
  }

  const fs::path folder_ = fs::path(::testing::TempDir()) /
                           ::testing::UnitTest::GetInstance()->current_test_info()->name();
};

TEST_F(ModelWaitTest, NamesWhatIsMissingUntilNothingIs) {
  const std::string in = folder_.string() + ": ";
  EXPECT_EQ(Missing(), in + "config.json is missing (and 2 more)");
  Write(folder_ / "config.json", "{");
  EXPECT_EQ(Missing(), in + "config.json is not complete (and 2 more)");
  Write(folder_ / "config.json", "{}");
  EXPECT_EQ(Missing(), in + "tokenizer.json is missing (and 1 more)");
  EXPECT_EQ(Missing({.tokenizer = false, .weights = false}), "");
  Write(folder_ / "tokenizer.json", "{}");
  EXPECT_EQ(Missing(), in + "model.safetensors or model.safetensors.index.json is missing");
  Write(folder_ / "model.safetensors.index.json",
        R"({"weight_map":{"a":"1.safetensors","b":"2.safetensors"}})");
  EXPECT_EQ(Missing(), in + "1.safetensors is missing (and 1 more)");
  Write(folder_ / "1.safetensors", Shard().substr(0, 20));
  EXPECT_EQ(Missing(), in + "1.safetensors is not complete (and 1 more)");
  Write(folder_ / "1.safetensors", Shard());
  const size_t whole = Shard().size();
  Write(folder_ / "2.safetensors", Shard().substr(0, whole - 1));
  EXPECT_EQ(Missing(), in + "2.safetensors is not complete: it has " + std::to_string(whole - 1) +
                           " of " + std::to_string(whole) + " bytes");
  Write(folder_ / "2.safetensors", Shard());
  EXPECT_EQ(Missing(), "");
}

TEST_F(ModelWaitTest, GivesUpInTimeAndSaysWhatIsMissing) {
  std::vector<std::string> said;
  const auto say = [&said](const std::string& what) { said.push_back(what); };
  const std::string none = (folder_ / "none").string();
  EXPECT_TRUE(WaitForModel(none, {}, 0, say).ok()) << "the loader reports what is wrong";
  EXPECT_TRUE(said.empty());
  const absl::Status late = WaitForModel(none, {}, 0.05, say);
  EXPECT_EQ(late.message(), "--wait-for-model-s: the model is not complete after 0.05 s: " + none +
                                ": no such folder");
  ASSERT_FALSE(said.empty());
  EXPECT_EQ(said[0], none + ": no such folder");
}

}  // namespace
}  // namespace skein::services
