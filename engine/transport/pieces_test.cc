#include "engine/transport/pieces.h"

#include <gtest/gtest.h>

#include <array>
#include <string>

namespace skein::engine {
namespace {

constexpr RegionExtent kLocal{0x10000, 1000};
constexpr RegionExtent kRemote{0x90000, 500};

const RegionExtent* Local(RegionId id) { return id.value == 1 ? &kLocal : nullptr; }
const RegionExtent* Remote(RegionId id) { return id.value == 2 ? &kRemote : nullptr; }

TransferPiece Piece(uint64_t local_offset, uint64_t remote_offset, uint64_t bytes) {
  return {RegionId{1}, local_offset, RegionId{2}, remote_offset, bytes};
}

TEST(ToSegments, MergesWhatTouchesOnBothSides) {
  const std::array pieces{Piece(0, 100, 10), Piece(10, 110, 10), Piece(20, 120, 0),
                          Piece(20, 120, 5), Piece(25, 300, 5),  Piece(40, 305, 5)};
  auto segments = ToSegments(pieces, Local, Remote);
  ASSERT_TRUE(segments.ok()) << segments.status();
  ASSERT_EQ(segments->size(), 3u);
  EXPECT_EQ((*segments)[0].bytes, 25u);
  EXPECT_EQ((*segments)[0].remote_address, kRemote.address + 100);
  EXPECT_EQ(reinterpret_cast<uint64_t>((*segments)[2].local_address), kLocal.address + 40);
}

TEST(ToSegments, NamesThePieceThatLeavesARegion) {
  const std::array local{Piece(0, 0, 1), Piece(999, 0, 2)};
  auto status = ToSegments(local, Local, Remote).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_NE(std::string(status.message()).find("piece 1"), std::string::npos) << status;
  const std::array remote{Piece(0, 500, 1)};
  EXPECT_TRUE(absl::IsInvalidArgument(ToSegments(remote, Local, Remote).status()));
  const std::array wrapping{Piece(8, 0, UINT64_MAX - 4), Piece(UINT64_MAX, 0, 2)};
  EXPECT_TRUE(absl::IsInvalidArgument(ToSegments(wrapping, Local, Remote).status()));
}

TEST(ToSegments, UnknownRegionsAreNotFound) {
  const std::array pieces{TransferPiece{RegionId{7}, 0, RegionId{2}, 0, 1}};
  EXPECT_TRUE(absl::IsNotFound(ToSegments(pieces, Local, Remote).status()));
}

TEST(ToSegments, NothingGivesNothing) { EXPECT_TRUE(ToSegments({}, Local, Remote)->empty()); }

}  // namespace
}  // namespace skein::engine
