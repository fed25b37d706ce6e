#include "engine/device/far_device.h"

#include <errno.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <string>

namespace skein::engine {
namespace {

constexpr size_t kBytes = 1 << 20;

TEST(FarDevice, NothingIsDoneBeforeSomebodyWaits) {
  FarDevice device(kBytes);
  void* a = device.Alloc(100).value();
  void* b = device.Alloc(100).value();
  std::string in(100, 'x'), out(100, '-');
  ASSERT_TRUE(device.Copy(a, in.data(), 100, CopyKind::kHostToDevice).ok());
  in.assign(100, 'y');  // it was read already
  ASSERT_TRUE(device.Copy(b, a, 100, CopyKind::kDeviceToDevice).ok());
  ASSERT_TRUE(device.Copy(out.data(), b, 100, CopyKind::kDeviceToHost).ok());
  EXPECT_EQ(out, std::string(100, '-'));
  ASSERT_TRUE(device.Synchronize().ok());
  EXPECT_EQ(out, std::string(100, 'x'));
}

TEST(FarDevice, ItsMemoryIsNotTheHosts) {
  FarDevice device(kBytes);
  void* memory = device.Alloc(100).value();
  int pipe_fds[2];
  ASSERT_EQ(pipe(pipe_fds), 0);
  EXPECT_EQ(write(pipe_fds[1], memory, 100), -1);
  EXPECT_EQ(errno, EFAULT);
  close(pipe_fds[0]);
  close(pipe_fds[1]);
  EXPECT_DEATH(std::memset(memory, 1, 100), "");
}

TEST(FarDevice, MemoryIsGivenBack) {
  FarDevice device(kBytes);
  void* half = device.Alloc(kBytes / 2).value();
  void* rest = device.Alloc(kBytes / 2).value();
  EXPECT_TRUE(absl::IsResourceExhausted(device.Alloc(1).status()));
  device.Free(half, kBytes / 2);
  device.Free(rest, kBytes / 2);
  EXPECT_EQ(device.MemoryInfo()->free_bytes, kBytes);
  EXPECT_TRUE(device.Alloc(kBytes).ok());
}

TEST(FarCopyStream, EachLookRunsOneCopy) {
  auto device = std::make_shared<FarDevice>(kBytes);
  const auto copies = MakeFarCopyStream(device);
  auto* memory = static_cast<std::byte*>(device->Alloc(8).value());
  EXPECT_TRUE(copies->IsDevice(memory));
  EXPECT_FALSE(copies->IsDevice(&device));
  auto* host = static_cast<char*>(copies->AllocHost(8).value());
  std::memcpy(host, "abcdefgh", 8);
  ASSERT_TRUE(copies->Copy(memory, host, 4).ok());
  ASSERT_TRUE(copies->Copy(memory + 4, host + 4, 4).ok());
  const uint64_t mark = copies->Mark().value();
  EXPECT_FALSE(copies->Done(mark).value());
  EXPECT_FALSE(copies->Done(mark).value());
  EXPECT_TRUE(copies->Done(mark).value());
  EXPECT_EQ(std::memcmp(device->Near(memory), "abcdefgh", 8), 0);
  ASSERT_TRUE(copies->Copy(host, memory + 6, 2).ok());
  ASSERT_TRUE(AwaitCopies(copies.get()).ok());
  EXPECT_EQ(std::string(host, 4), "ghcd");
  copies->FreeHost(host, 8);
}

}  // namespace
}  // namespace skein::engine
