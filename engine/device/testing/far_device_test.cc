#include "engine/device/testing/far_device.h"

#include <errno.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <functional>
#include <memory>
#include <string>

#include "engine/device/testing/far_peer_opener.h"

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

// Whether `check` holds in a child process, as which it sees the parent's memory from outside.
bool HoldsInAnother(const std::function<bool()>& check) {
  const pid_t pid = fork();
  if (pid == 0) _exit(check() ? 0 : 1);
  int status = 0;
  return waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

TEST(FarPeerOpener, AnotherProcessReadsAndWritesWhatItOpened) {
  auto device = std::make_shared<FarDevice>(kBytes);
  auto* memory = static_cast<std::byte*>(device->Alloc(20000).value());
  std::memcpy(device->Near(memory + 5000), "theirs", 6);
  const auto opener = MakeFarPeerOpener(device);
  const PeerPlace place = opener->Export(memory + 5000).value();
  EXPECT_EQ(place.offset, 5000u);
  EXPECT_TRUE(HoldsInAnother([&] {
    auto own = std::make_shared<FarDevice>(kBytes);
    const auto theirs = MakeFarPeerOpener(own)->Open(place);
    if (!theirs.ok()) return false;
    const auto copies = MakeFarCopyStream(own);
    char seen[6];
    const CopyPiece pieces[] = {{seen, theirs->get(), 6}, {theirs->get() + 6, "+ours", 5}};
    return copies->CopyPieces(pieces).ok() && AwaitCopies(copies.get()).ok() &&
           std::memcmp(seen, "theirs", 6) == 0;
  }));
  EXPECT_EQ(std::memcmp(device->Near(memory + 5000), "theirs+ours", 11), 0);
}

TEST(FarPeerOpener, WhatWasOpenedIsFarAndOpenUntilTheLastPointerGoes) {
  auto device = std::make_shared<FarDevice>(kBytes);
  auto* memory = static_cast<std::byte*>(device->Alloc(kBytes / 2).value());
  const auto opener = MakeFarPeerOpener(device);
  const PeerPlace first = opener->Export(memory).value();
  const PeerPlace second = opener->Export(memory + 100).value();
  EXPECT_TRUE(HoldsInAnother([&] {
    auto a = opener->Open(first).value(), b = opener->Open(second).value();
    if (b.get() != a.get() + 100 || FarAllocationsOpen() != 1) return false;
    if (!HoldsInAnother([&] { return write(STDERR_FILENO, a.get(), 1) < 0 && errno == EFAULT; })) {
      return false;
    }
    a.reset();
    const bool still = FarAllocationsOpen() == 1 && NearOfAny(b.get()) != b.get();
    b.reset();
    return still && FarAllocationsOpen() == 0;
  }));
}

TEST(FarPeerOpener, WhatIsNotThereIsUnavailable) {
  auto device = std::make_shared<FarDevice>(kBytes);
  const auto opener = MakeFarPeerOpener(device);
  EXPECT_TRUE(absl::IsUnavailable(opener->Export(&device).status()));
  PeerPlace place = opener->Export(device->Alloc(100).value()).value();
  EXPECT_TRUE(HoldsInAnother([&] {
    PeerPlace longer = place, gone = place, outside = place;
    longer.allocation_bytes = 2 * kBytes;
    gone.process = 999999999;
    outside.offset = place.allocation_bytes;
    return absl::IsUnavailable(opener->Open(longer).status()) &&
           absl::IsUnavailable(opener->Open(gone).status()) &&
           absl::IsUnavailable(opener->Open(outside).status());
  }));
}

}  // namespace
}  // namespace skein::engine
