#include "engine/checkpoint/safetensors.h"

#include <cstring>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace skein::engine {
namespace {

using ::testing::HasSubstr;

std::vector<uint8_t> File(const std::string& header, size_t data_bytes) {
  const uint64_t length = header.size();
  std::vector<uint8_t> file(8 + header.size() + data_bytes, 0x5a);
  std::memcpy(file.data(), &length, 8);
  std::memcpy(file.data() + 8, header.data(), header.size());
  return file;
}

std::string Message(const std::vector<uint8_t>& file) {
  const auto parsed = ParseSafetensors(file, "m");
  return parsed.ok() ? "accepted" : std::string(parsed.status().message());
}

constexpr char kTwo[] = R"({"__metadata__":{"format":"pt"},)"
                        R"("b":{"dtype":"BF16","shape":[3],"data_offsets":[16,22]},)"
                        R"("a":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]}})";

TEST(SafetensorsTest, TensorsInOrderOfTheirBytes) {
  const std::vector<uint8_t> file = File(kTwo, 22);
  const auto tensors = ParseSafetensors(file, "m");
  ASSERT_TRUE(tensors.ok()) << tensors.status();
  ASSERT_EQ(tensors->size(), 2u);
  EXPECT_EQ((*tensors)[0].name, "a");
  EXPECT_EQ((*tensors)[0].shape, (std::vector<int64_t>{2, 2}));
  EXPECT_EQ((*tensors)[0].data, file.data() + file.size() - 22);
  EXPECT_EQ((*tensors)[1].name, "b");
  EXPECT_EQ((*tensors)[1].dtype, "BF16");
  EXPECT_EQ((*tensors)[1].bytes, 6u);
}

TEST(SafetensorsTest, EmptyTensorsAndScalars) {
  EXPECT_EQ(Message(File(R"({"s":{"dtype":"F32","shape":[],"data_offsets":[0,4]},)"
                         R"("e":{"dtype":"F32","shape":[0,7],"data_offsets":[4,4]}})",
                         4)),
            "accepted");
  EXPECT_EQ(Message(File("{}", 0)), "accepted");
}

TEST(SafetensorsTest, EveryTruncationIsRefused) {
  const std::vector<uint8_t> file = File(kTwo, 22);
  for (size_t size = 0; size < file.size(); ++size) {
    EXPECT_NE(Message({file.begin(), file.begin() + static_cast<std::ptrdiff_t>(size)}), "accepted")
        << size;
  }
}

TEST(SafetensorsTest, LyingLengths) {
  std::vector<uint8_t> file = File(kTwo, 22);
  for (const uint64_t length : {~uint64_t{0}, uint64_t{1} << 63, uint64_t{100'000'001}}) {
    std::memcpy(file.data(), &length, 8);
    EXPECT_THAT(Message(file), HasSubstr("too large"));
  }
  const uint64_t beyond = file.size() - 7;
  std::memcpy(file.data(), &beyond, 8);
  EXPECT_THAT(Message(file), HasSubstr("truncated"));
}

struct Lie {
  const char* header;
  size_t data_bytes;
  const char* named;  // part of the message
};

class LyingHeaderTest : public ::testing::TestWithParam<Lie> {};

TEST_P(LyingHeaderTest, IsRefusedByName) {
  EXPECT_THAT(Message(File(GetParam().header, GetParam().data_bytes)), HasSubstr(GetParam().named));
}

INSTANTIATE_TEST_SUITE_P(
    All, LyingHeaderTest,
    ::testing::Values(
        Lie{"", 0, "not valid JSON"}, Lie{"[]", 0, "not a JSON object"},
        Lie{R"({"a":1})", 0, "tensor \"a\": entry"},
        Lie{R"({"a":{"shape":[1],"data_offsets":[0,4]}})", 4, "\"a\": dtype"},
        Lie{R"({"a":{"dtype":"F31","shape":[1],"data_offsets":[0,4]}})", 4, "\"F31\" is unknown"},
        Lie{R"({"a":{"dtype":"F32","data_offsets":[0,4]}})", 4, "\"a\": shape"},
        Lie{R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4, "\"a\": shape"},
        Lie{R"({"a":{"dtype":"F32","shape":[1.5],"data_offsets":[0,6]}})", 6, "\"a\": shape"},
        // 2^62 · 2 · 4 bytes overflow to 0.
        Lie{R"({"a":{"dtype":"F32","shape":[4611686018427387904,2],"data_offsets":[0,0]}})", 0,
            "\"a\": shape"},
        Lie{R"({"a":{"dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,4]}})", 4,
            "\"a\": shape"},
        Lie{R"({"a":{"dtype":"F32","shape":[99999999999999999999],"data_offsets":[0,4]}})", 4,
            "\"a\": shape"},
        Lie{R"({"a":{"dtype":"F32","shape":[1]}})", 4, "\"a\": data_offsets"},
        Lie{R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0]}})", 4, "data_offsets"},
        Lie{R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,-4]}})", 4, "data_offsets"},
        Lie{R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", 4, "not within"},
        Lie{R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", 4, "not within"},
        Lie{R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,18446744073709551615]}})", 4,
            "not within"},
        Lie{R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4, "8 bytes that dtype"},
        Lie{R"({"a":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]},)"
            R"("b":{"dtype":"BF16","shape":[2],"data_offsets":[2,6]}})",
            6, "\"b\": data_offsets: overlaps"},
        Lie{R"({"a":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]},)"
            R"("b":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]}})",
            4, "\"b\": data_offsets: overlaps"},
        Lie{R"({"a":{"dtype":"BF16","shape":[2],"data_offsets":[2,6]}})", 6, "leaves a hole"},
        Lie{R"({"a":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]}})", 6, "after the last"},
        Lie{R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
            R"("a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
            4, "duplicate key \"a\""},
        Lie{R"({"a":{"dtype":"F32","dtype":"F16","shape":[1],"data_offsets":[0,4]}})", 4,
            "duplicate key \"dtype\""},
        Lie{R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}} x)", 4, "not valid JSON"}));

TEST(SafetensorsTest, DeepNestingIsRefused) {
  const std::string deep = std::string(R"({"a":)") + std::string(100'000, '[');
  EXPECT_THAT(Message(File(deep, 0)), HasSubstr("nested too deep"));
}

}  // namespace
}  // namespace skein::engine
