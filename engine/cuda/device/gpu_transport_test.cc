// The copy stream of the first GPU, and handoff transfers between two pools in its memory: through
// staging memory of the host, and straight.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "engine/cuda/device/cuda_copy_stream.h"
#include "engine/cuda/device/cuda_device.h"
#include "engine/cuda/device/cuda_peer_opener.h"
#include "engine/transport/ucx/ucx_transport.h"
#include "gtest/gtest.h"

namespace skein::engine {
namespace {

constexpr size_t kBlockBytes = 48 << 10;
constexpr size_t kBlocks = 600;
constexpr size_t kPoolBytes = kBlocks * kBlockBytes;

std::vector<uint8_t> RandomBytes(size_t bytes, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<uint8_t> data(bytes);
  for (uint8_t& byte : data) byte = static_cast<uint8_t>(random());
  return data;
}

class GpuTransport : public testing::Test {
 protected:
  std::byte* Pool() { return static_cast<std::byte*>(device_->Alloc(kPoolBytes).value()); }
  void Write(std::byte* pool, const std::vector<uint8_t>& data) {
    ASSERT_TRUE(device_->Copy(pool, data.data(), data.size(), CopyKind::kHostToDevice).ok());
    ASSERT_TRUE(device_->Synchronize().ok());
  }
  std::vector<uint8_t> Read(const std::byte* pool) {
    std::vector<uint8_t> data(kPoolBytes);
    EXPECT_TRUE(device_->Copy(data.data(), pool, data.size(), CopyKind::kDeviceToHost).ok());
    EXPECT_TRUE(device_->Synchronize().ok());
    return data;
  }

  std::shared_ptr<CudaDevice> device_ = OpenCudaDevice("cuda:0").value();
  std::shared_ptr<CopyStream> copies_ = MakeCudaCopyStream("cuda:0").value();
};

TEST_F(GpuTransport, CopiesAreDoneWhenTheStreamSaysSo) {
  std::byte* const pool = Pool();
  auto* const host = static_cast<std::byte*>(copies_->AllocHost(kPoolBytes).value());
  EXPECT_TRUE(copies_->IsDevice(pool + 5));
  EXPECT_FALSE(copies_->IsDevice(host));
  EXPECT_FALSE(copies_->IsDevice(this));
  EXPECT_TRUE(copies_->Done(0).value());
  const std::vector<uint8_t> data = RandomBytes(kPoolBytes, 1);
  for (int round = 0; round < 10; ++round) {
    std::copy_n(reinterpret_cast<const std::byte*>(data.data()), kPoolBytes, host);
    ASSERT_TRUE(copies_->Copy(pool, host, kPoolBytes).ok());
    const uint64_t there = copies_->Mark().value();
    std::vector<std::byte> back(kPoolBytes);
    while (!copies_->Done(there).value()) {
    }
    std::fill_n(host, kPoolBytes, std::byte{0});
    ASSERT_TRUE(copies_->Copy(host, pool, kPoolBytes).ok());
    EXPECT_GT(copies_->Mark().value(), there);
    ASSERT_TRUE(AwaitCopies(copies_.get()).ok());
    EXPECT_TRUE(std::equal(data.begin(), data.end(), reinterpret_cast<const uint8_t*>(host)));
  }
  copies_->FreeHost(host, kPoolBytes);
}

TEST_F(GpuTransport, PiecesOfAnySizeAreCopied) {
  std::byte* const from = Pool();
  std::byte* const to = Pool();
  const std::vector<uint8_t> data = RandomBytes(kPoolBytes, 4);
  Write(from, data);
  std::vector<uint8_t> expected(kPoolBytes, 0);
  std::mt19937_64 random(5);
  for (const size_t mean : {size_t{100}, size_t{10000}, size_t{1} << 20}) {
    std::vector<CopyPiece> pieces;
    for (size_t at = 0; at < kPoolBytes - 3 * mean; at += 3 * mean) {
      const size_t to_at = at + random() % mean, from_at = at + random() % mean;
      const size_t bytes = 1 + random() % (2 * mean);
      pieces.push_back({to + to_at, from + from_at, bytes});
      std::copy_n(data.begin() + static_cast<std::ptrdiff_t>(from_at), bytes,
                  expected.begin() + static_cast<std::ptrdiff_t>(to_at));
    }
    ASSERT_TRUE(copies_->CopyPieces(pieces).ok());
    ASSERT_TRUE(AwaitCopies(copies_.get()).ok());
    EXPECT_TRUE(Read(to) == expected) << mean;
  }
  device_->Free(from, kPoolBytes);
  device_->Free(to, kPoolBytes);
}

TEST_F(GpuTransport, PiecesGoToAndFromPageLockedMemory) {
  std::byte* const pool = Pool();
  auto* const host = static_cast<std::byte*>(copies_->AllocHost(64 << 10).value());
  const std::vector<uint8_t> data = RandomBytes(64 << 10, 6);
  std::copy_n(reinterpret_cast<const std::byte*>(data.data()), data.size(), host);
  std::vector<CopyPiece> there, back;
  for (size_t at = 0; at < data.size(); at += 4096) {
    there.push_back({pool + 3 * at, host + at, 4096});
    back.push_back({host + (data.size() - 4096 - at), pool + 3 * at, 4096});
  }
  ASSERT_TRUE(copies_->CopyPieces(there).ok());
  ASSERT_TRUE(copies_->CopyPieces(back).ok());
  ASSERT_TRUE(AwaitCopies(copies_.get()).ok());
  for (size_t at = 0; at < data.size(); at += 4096) {
    const std::byte* const moved = host + (data.size() - 4096 - at);
    EXPECT_TRUE(
        std::equal(moved, moved + 4096, reinterpret_cast<const std::byte*>(data.data()) + at));
  }
  copies_->FreeHost(host, 64 << 10);
  device_->Free(pool, kPoolBytes);
}

struct Way {
  const char* tls;
  bool direct;
};

TEST_F(GpuTransport, ScatteredBlocksGoFromPoolToPool) {
  for (const auto& [tls, direct] :
       {Way{"self,shm", false}, Way{"self,tcp", false}, Way{"self,shm", true}}) {
    const auto opener = direct ? MakeCudaPeerOpener("cuda:0").value() : nullptr;
    auto source = MakeUcxTransport({.tls = tls}, copies_, opener).value();
    auto target =
        MakeUcxTransport({.tls = tls}, MakeCudaCopyStream("cuda:0").value(), opener).value();
    std::byte* const from = Pool();
    std::byte* const to = Pool();
    const std::vector<uint8_t> data = RandomBytes(kPoolBytes, 2);
    Write(from, data);
    const Region local = source->Register(from, kPoolBytes).value();
    const Region remote = target->Register(to, kPoolBytes).value();
    const Peer peer = source->Connect(target->Describe({&remote.id, 1}).value()).value();
    std::vector<size_t> places(kBlocks);
    for (size_t i = 0; i < kBlocks; ++i) places[i] = i;
    std::mt19937_64 random(3);
    std::shuffle(places.begin(), places.end(), random);
    std::vector<TransferPiece> pieces;
    std::vector<uint8_t> expected(kPoolBytes, 0);
    for (size_t i = 0; i < kBlocks; i += 2) {
      pieces.push_back(
          {local.id, i * kBlockBytes, peer.regions[0], places[i] * kBlockBytes, kBlockBytes});
      std::copy_n(data.begin() + static_cast<std::ptrdiff_t>(i * kBlockBytes), kBlockBytes,
                  expected.begin() + static_cast<std::ptrdiff_t>(places[i] * kBlockBytes));
    }
    ASSERT_TRUE(source->Post(peer.id, TransferOp::kPut, pieces, std::chrono::seconds(30)).ok());
    std::vector<TransferCompletion> ended, none;
    while (ended.empty()) {
      source->Poll(1, {}, &ended);
      target->Poll(1, {}, &none);
    }
    ASSERT_TRUE(ended[0].status.ok()) << ended[0].status;
    EXPECT_TRUE(Read(to) == expected) << tls;
    const PeerInfo info = source->Inspect(peer.id).value();
    EXPECT_EQ(info.path, direct ? "direct" : "host-staged");
    RecordProperty(info.transport + " GB/s",
                   std::to_string(static_cast<double>(info.put_bytes) / info.busy_seconds * 1e-9));
    source.reset();
    target.reset();
    device_->Free(from, kPoolBytes);
    device_->Free(to, kPoolBytes);
  }
}

}  // namespace
}  // namespace skein::engine
