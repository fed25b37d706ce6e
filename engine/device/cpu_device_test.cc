#include "engine/device/cpu_device.h"

#include <cstdint>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace skein::engine {
namespace {

std::string WriteFile(const std::string& name, const std::string& text) {
  const std::string path = testing::TempDir() + "/" + name;
  std::ofstream(path) << text;
  return path;
}

TEST(CpuDevice, AllocIsAlignedAndZero) {
  const auto device = MakeCpuDevice();
  for (const size_t bytes : {size_t{1}, size_t{4096}, size_t{3} << 20}) {
    const auto memory = device->Alloc(bytes);
    ASSERT_TRUE(memory.ok()) << memory.status();
    EXPECT_EQ(reinterpret_cast<uintptr_t>(*memory) % 4096, 0u);
    const auto* begin = static_cast<const char*>(*memory);
    EXPECT_EQ(std::vector<char>(begin, begin + bytes), std::vector<char>(bytes, 0));
    device->Free(*memory, bytes);
  }
}

TEST(CpuDevice, TooMuchIsResourceExhausted) {
  const auto memory = MakeCpuDevice()->Alloc(size_t{1} << 60);
  ASSERT_EQ(memory.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(std::string(memory.status().message()).find("1152921504606846976"), std::string::npos);
}

TEST(CpuDevice, CopyIsDoneAfterSynchronize) {
  const auto device = MakeCpuDevice();
  const std::string from = "skein";
  std::string to(from.size(), ' ');
  ASSERT_TRUE(device->Copy(to.data(), from.data(), from.size(), CopyKind::kHostToDevice).ok());
  ASSERT_TRUE(device->Synchronize().ok());
  EXPECT_EQ(to, from);
}

TEST(CpuDevice, MemoryInfoOfThisMachine) {
  const auto use = MakeCpuDevice()->MemoryInfo();
  ASSERT_TRUE(use.ok()) << use.status();
  EXPECT_GT(use->total_bytes, size_t{1} << 20);
  EXPECT_LE(use->free_bytes, use->total_bytes);
}

TEST(ReadHostMemory, TheTighterLimitCounts) {
  const std::string meminfo = WriteFile("meminfo", "MemTotal: 1000 kB\nMemAvailable: 600 kB\n");
  WriteFile("memory.max", "204800\n");
  WriteFile("memory.current", "102400\n");
  const auto limited = ReadHostMemory({meminfo, testing::TempDir()});
  ASSERT_TRUE(limited.ok());
  EXPECT_EQ(limited->total_bytes, 204800u);
  EXPECT_EQ(limited->free_bytes, 102400u);

  WriteFile("memory.max", "max\n");
  const auto open = ReadHostMemory({meminfo, testing::TempDir()});
  ASSERT_TRUE(open.ok());
  EXPECT_EQ(open->total_bytes, 1024000u);
  EXPECT_EQ(open->free_bytes, 614400u);
}

TEST(ReadHostMemory, NoMeminfoIsUnavailable) {
  EXPECT_EQ(ReadHostMemory({"/nonexistent", "/nonexistent"}).status().code(),
            absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace skein::engine
