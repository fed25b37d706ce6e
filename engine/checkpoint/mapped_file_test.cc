#include "engine/checkpoint/mapped_file.h"

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <vector>

#include "engine/checkpoint/huge_mapping.h"
#include "gtest/gtest.h"

namespace skein::engine {
namespace {

std::string Path(const char* name) { return ::testing::TempDir() + "/mapped_file_" + name; }

// Bytes that tell their own position.
std::vector<char> Pattern(size_t size) {
  std::vector<char> bytes(size);
  uint32_t state = 1;
  for (char& byte : bytes) byte = static_cast<char>((state = state * 1664525 + 1013904223) >> 24);
  return bytes;
}

void ExpectMapsAsWritten(const std::string& path, size_t size) {
  const std::vector<char> written = Pattern(size);
  std::ofstream(path, std::ios::binary).write(written.data(), static_cast<std::streamsize>(size));
  // Cached by the writing, then by the first mapping.
  for (const MappedUse use :
       {MappedUse::kAgainAndAgain, MappedUse::kAgainAndAgain, MappedUse::kOnce}) {
    const auto file = MappedFile::Open(path, use);
    ASSERT_TRUE(file.ok()) << file.status();
    ASSERT_EQ(file->bytes().size(), size);
    EXPECT_TRUE(std::equal(written.begin(), written.end(),
                           reinterpret_cast<const char*>(file->bytes().data())));
    std::printf("%zu bytes, %zu in huge pages\n", size, HugeBytesMapped(file->bytes().data()));
  }
  std::filesystem::remove(path);
}

TEST(MappedFileTest, SmallAndOddSizes) {
  ExpectMapsAsWritten(Path("one"), 1);
  ExpectMapsAsWritten(Path("page"), 4096);
  ExpectMapsAsWritten(Path("odd"), 4097);
}

TEST(MappedFileTest, LargeFile) { ExpectMapsAsWritten(Path("large"), (size_t{40} << 20) + 123); }

TEST(MappedFileTest, EmptyMissingAndFolder) {
  std::ofstream(Path("empty")).flush();
  EXPECT_EQ(MappedFile::Open(Path("empty"))->bytes().size(), 0u);
  EXPECT_EQ(MappedFile::Open(Path("missing")).status().code(), absl::StatusCode::kNotFound);
  EXPECT_FALSE(MappedFile::Open(::testing::TempDir()).ok());
}

TEST(MappedFileTest, SmallFilesHaveALimit) {
  std::ofstream(Path("text")) << "hello";
  EXPECT_EQ(*ReadSmallFile(Path("text"), 5), "hello");
  EXPECT_EQ(ReadSmallFile(Path("text"), 4).status().code(), absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace skein::engine
