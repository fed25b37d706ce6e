// Pieces of all sizes and alignments, from and to wherever they lie.
#include "engine/cuda/kernels/copy_pieces.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "engine/cuda/testing/twin_device.h"
#include "gtest/gtest.h"

namespace skein::engine {
namespace {

constexpr size_t kPoolBytes = 1 << 20;

class CopyPiecesTest : public testing::Test {
 protected:
  CopyPiecesTest() : from_(Pool()), to_(Pool()), source_(kPoolBytes, '\0') {
    for (char& c : source_) c = static_cast<char>(random_());
    EXPECT_TRUE(device_->Copy(from_, source_.data(), kPoolBytes, CopyKind::kHostToDevice).ok());
    EXPECT_TRUE(device_->Synchronize().ok());
  }
  ~CopyPiecesTest() override {
    device_->Free(from_, kPoolBytes);
    device_->Free(to_, kPoolBytes);
  }

  char* Pool() { return static_cast<char*>(device_->Alloc(kPoolBytes).value()); }

  void Add(size_t to, size_t from, size_t bytes) {
    pieces_.push_back({to_ + to, from_ + from, bytes});
    expected_.replace(to, bytes, source_, from, bytes);
  }

  void ExpectCopied() {
    LaunchCopyPieces(pieces_, TestingStream());
    ASSERT_TRUE(device_->Synchronize().ok());
    std::string copied(kPoolBytes, '\0');
    ASSERT_TRUE(device_->Copy(copied.data(), to_, kPoolBytes, CopyKind::kDeviceToHost).ok());
    ASSERT_TRUE(device_->Synchronize().ok());
    EXPECT_TRUE(copied == expected_);
  }

  std::mt19937_64 random_{7};
  std::shared_ptr<Device> device_ = OpenTestingDevice();
  char* const from_;
  char* const to_;
  std::string source_;
  std::string expected_ = std::string(kPoolBytes, '\0');
  std::vector<CopyPiece> pieces_;
};

TEST_F(CopyPiecesTest, NothingIsNothing) {
  ExpectCopied();
  Add(5, 7, 0);
  ExpectCopied();
}

TEST_F(CopyPiecesTest, EveryAlignmentOfShortPieces) {
  size_t at = 0;
  for (size_t to = 0; to < 16; ++to) {
    for (size_t from = 0; from < 16; from += 3) {
      const size_t bytes = random_() % 80;
      Add(at + to, at + from, bytes);
      at += 128;
    }
  }
  ExpectCopied();
}

// More than one launch takes, in places of a pool that was shuffled.
TEST_F(CopyPiecesTest, BlocksChangeTheirPlaces) {
  constexpr size_t kBlock = 2048, kBlocks = 400;
  std::vector<size_t> places(kBlocks);
  for (size_t i = 0; i < kBlocks; ++i) places[i] = i;
  std::shuffle(places.begin(), places.end(), random_);
  for (size_t i = 0; i < kBlocks; ++i) Add(places[i] * kBlock, i * kBlock, kBlock);
  ExpectCopied();
}

// Around the sizes at which blocks of threads take another turn.
TEST_F(CopyPiecesTest, LongPiecesBesideShortOnes) {
  Add(0, 16, (16 << 10) - 16);
  Add(20000, 40000, 1);
  Add(32 << 10, (64 << 10) + 3, (16 << 10) + 1);
  Add(64 << 10, 160 << 10, 128 << 10);
  Add((256 << 10) + 5, (300 << 10) + 5, (300 << 10) + 7);
  ExpectCopied();
}

}  // namespace
}  // namespace skein::engine
