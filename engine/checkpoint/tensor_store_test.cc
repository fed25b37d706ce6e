#include "engine/checkpoint/tensor_store.h"

#include <cstring>
#include <filesystem>
#include <fstream>

#include "engine/checkpoint/model_hash.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace skein::engine {
namespace {

using ::testing::HasSubstr;

class TensorStoreTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    dir_ = ::testing::TempDir() + "/tensor_store_" + test->name();
    std::filesystem::create_directories(dir_);
  }

  void Write(const std::string& name, const std::string& text) {
    std::ofstream(dir_ + "/" + name, std::ios::binary) << text;
  }
  void WriteTensors(const std::string& name, const std::string& header, const std::string& data) {
    const uint64_t length = header.size();
    std::string text(8, '\0');
    std::memcpy(text.data(), &length, 8);
    Write(name, text + header + data);
  }
  // A file of one F32 tensor of two elements.
  void WriteOne(const std::string& name, const std::string& tensor, float first = 1.0f) {
    const float values[2] = {first, 2.0f};
    WriteTensors(name, "{\"" + tensor + R"(":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})",
                 {reinterpret_cast<const char*>(values), sizeof(values)});
  }
  std::string Message() {
    const auto store = TensorStore::Open(dir_);
    return store.ok() ? "accepted" : std::string(store.status().message());
  }

  std::string dir_;
};

TEST_F(TensorStoreTest, ViewsNameWhatIsWrong) {
  // One byte of padding less than alignment wants: the tensors are copied, not misread.
  WriteTensors(
      "model.safetensors",
      R"({"w":{"dtype":"BF16","shape":[2,3],"data_offsets":[0,12]},)"
      R"("i":{"dtype":"I64","shape":[1],"data_offsets":[12,20]}} )",
      std::string("\x80\x3f\x00\x40\x40\x40\x80\x40\xa0\x40\xc0\x40", 12) + std::string(8, '\0'));
  const auto store = TensorStore::Open(dir_);
  ASSERT_TRUE(store.ok()) << store.status();
  const auto w = store->Matrix("w", 2, 3);
  ASSERT_TRUE(w.ok()) << w.status();
  EXPECT_EQ(w->dtype, DType::kBF16);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(w->data) % 2, 0u);
  EXPECT_EQ(ToFloat(static_cast<const BF16*>(w->data)[5]), 6.0f);
  EXPECT_THAT(std::string(store->Matrix("w", 3, 2).status().message()),
              HasSubstr("tensor \"w\": shape [2, 3], expected [3, 2]"));
  EXPECT_THAT(std::string(store->Vector("w", 6).status().message()), HasSubstr("expected [6]"));
  EXPECT_THAT(std::string(store->Vector("v", 6).status().message()),
              HasSubstr("tensor \"v\": missing; expected shape [6]"));
  EXPECT_THAT(std::string(store->Vector("i", 1).status().message()), HasSubstr("dtype I64"));
}

TEST_F(TensorStoreTest, NoWeightsAtAll) { EXPECT_THAT(Message(), HasSubstr("neither")); }

TEST_F(TensorStoreTest, EmptyFile) {
  Write("model.safetensors", "");
  EXPECT_THAT(Message(), HasSubstr("truncated"));
}

TEST_F(TensorStoreTest, Shards) {
  WriteOne("a.safetensors", "x");
  WriteOne("b.safetensors", "y");
  Write("model.safetensors.index.json",
        R"({"metadata":{"total_size":16},"weight_map":{"x":"a.safetensors","y":"b.safetensors"}})");
  const auto store = TensorStore::Open(dir_);
  ASSERT_TRUE(store.ok()) << store.status();
  EXPECT_TRUE(store->Has("x") && store->Has("y"));
  EXPECT_EQ(static_cast<const float*>(store->Vector("y", 2)->data)[1], 2.0f);
}

TEST_F(TensorStoreTest, LyingIndexes) {
  WriteOne("a.safetensors", "x");
  WriteOne("b.safetensors", "x");
  const auto index = [&](const char* map) {
    Write("model.safetensors.index.json", std::string(R"({"weight_map":)") + map + "}");
    return Message();
  };
  EXPECT_EQ(index(R"({"x":"a.safetensors"})"), "accepted");
  EXPECT_THAT(index(R"({"x":"c.safetensors"})"), HasSubstr("missing shard c.safetensors"));
  for (const char* path : {"../a.safetensors", "/etc/passwd", "", "..", "sub/a.safetensors"}) {
    EXPECT_THAT(index((std::string(R"({"x":")") + path + "\"}").c_str()),
                HasSubstr("is not a file name in this folder"))
        << path;
  }
  EXPECT_THAT(index(R"({"x":1})"), HasSubstr("tensor \"x\": 1"));
  EXPECT_THAT(index(R"({"z":"a.safetensors"})"), HasSubstr("tensor \"z\": not in shard"));
  EXPECT_THAT(index(R"({"x":"a.safetensors","z":"b.safetensors"})"), HasSubstr("in both"));
  WriteOne("b.safetensors", "y");
  EXPECT_THAT(index(R"({"x":"b.safetensors","y":"a.safetensors"})"), HasSubstr("not in shard"));
  WriteTensors("b.safetensors",
               R"({"y":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
               R"("z":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
               "ab");
  EXPECT_THAT(index(R"({"x":"a.safetensors","y":"b.safetensors"})"),
              HasSubstr("tensor \"z\": in shard b.safetensors but not in the index"));
  EXPECT_THAT(index("[]"), HasSubstr("weight_map"));
  EXPECT_THAT(index("{}"), HasSubstr("weight_map"));
}

TEST_F(TensorStoreTest, HashTellsModelsApart) {
  WriteOne("model.safetensors", "x");
  const auto store = TensorStore::Open(dir_);
  ASSERT_TRUE(store.ok());
  const std::string hash = ModelHash("{}", *store);
  EXPECT_EQ(hash.size(), 64u);
  EXPECT_EQ(hash, ModelHash("{}", *TensorStore::Open(dir_)));
  EXPECT_NE(hash, ModelHash("{ }", *store));
  WriteOne("model.safetensors", "x", 1.5f);
  EXPECT_NE(hash, ModelHash("{}", *TensorStore::Open(dir_)));
  WriteOne("model.safetensors", "y");
  const std::string renamed = ModelHash("{}", *TensorStore::Open(dir_));
  EXPECT_NE(hash, renamed);

  // How tensors are dealt to files does not matter.
  std::filesystem::rename(dir_ + "/model.safetensors", dir_ + "/shard.safetensors");
  Write("model.safetensors.index.json", R"({"weight_map":{"y":"shard.safetensors"}})");
  EXPECT_EQ(renamed, ModelHash("{}", *TensorStore::Open(dir_)));
}

}  // namespace
}  // namespace skein::engine
