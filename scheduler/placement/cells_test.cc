#include "scheduler/placement/cells.h"

#include <gtest/gtest.h>

#include <cmath>

namespace skein::scheduler {
namespace {

constexpr char kModel[] = "m";

CellReport LoadOf(int64_t capacity, int64_t held) { return {{{kModel, {capacity, held}}}}; }

CellPicker PickerOf(size_t cells, int64_t capacity = 1000) {
  CellPicker picker({.cells = cells});
  for (size_t i = 0; i < cells; ++i) picker.Report(i, LoadOf(capacity, 0));
  return picker;
}

TEST(CellPicker, OnlyCellsThatAreAliveAndServeTheModelAreGivenRequests) {
  CellPicker picker({.cells = 3});
  EXPECT_FALSE(picker.Place(kModel, 0).has_value()) << "none has reported";
  picker.Report(0, {{{"other", {10, 0}}}});
  picker.Report(1, LoadOf(0, 0));
  EXPECT_FALSE(picker.Place(kModel, 0).has_value());
  picker.Report(2, LoadOf(10, 0));
  EXPECT_EQ(picker.Place(kModel, 0), 2u);
  EXPECT_EQ(picker.Place(kModel, 77), 2u);
  EXPECT_FALSE(picker.Place(kModel, 77, {2}).has_value()) << "it was tried";
  picker.Lose(2);
  EXPECT_FALSE(picker.IsAlive(2));
  picker.Refuse(2, kModel);  // a late one
  EXPECT_TRUE(picker.CheckInvariants().ok()) << picker.CheckInvariants();
  EXPECT_FALSE(picker.Place(kModel, 77).has_value());
}

TEST(CellPicker, AKeyStaysInItsCellAndALostCellMovesOnlyItsOwnKeys) {
  constexpr size_t kCells = 16;
  constexpr uint64_t kKeys = 4000;
  std::map<uint64_t, size_t> home;
  std::map<size_t, int> keys_of;
  for (uint64_t key = 1; key <= kKeys; ++key) {
    CellPicker picker = PickerOf(kCells);
    home[key] = *picker.Place(kModel, key);
    EXPECT_EQ(picker.Place(kModel, key), home[key]);
    ++keys_of[home[key]];
    if (key > 500) continue;
    picker.Lose(3);
    const size_t then = *picker.Place(kModel, key);
    EXPECT_EQ(then == home[key], home[key] != 3) << key;
  }
  for (const auto& [cell, keys] : keys_of) EXPECT_NEAR(keys, kKeys / kCells, 70) << cell;
}

TEST(CellPicker, ACellOfTwiceTheCapacityHasTwiceTheKeys) {
  int large = 0;
  for (uint64_t key = 1; key <= 3000; ++key) {
    CellPicker picker({.cells = 2});
    picker.Report(0, LoadOf(1000, 0));
    picker.Report(1, LoadOf(2000, 0));
    large += picker.Place(kModel, key) == 1u ? 1 : 0;
  }
  EXPECT_NEAR(large, 2000, 80);
}

TEST(CellPicker, APopularKeySpillsOverAtTheBoundAndNoCellIsDrowned) {
  constexpr size_t kCells = 8;
  CellPicker picker = PickerOf(kCells, 1000);
  std::map<size_t, int> placed;
  for (int i = 0; i < 4000; ++i) ++placed[*picker.Place(kModel, 7)];
  for (const auto& [cell, count] : placed) EXPECT_LE(count, 4000 / 8 * 1.25 + 2) << cell;
  EXPECT_LT(placed.size(), kCells) << "the last cells in its order get none";
}

TEST(CellPicker, WithoutAKeyTheLoadIsEven) {
  CellPicker picker = PickerOf(16, 1000);
  picker.Report(5, LoadOf(1000, 900));
  std::map<size_t, int> placed;
  for (int i = 0; i < 8000; ++i) ++placed[*picker.Place(kModel, 0)];
  EXPECT_LT(placed[5], 10) << "it is already full";
  for (size_t cell = 0; cell < 16; ++cell) {
    if (cell == 5) continue;
    EXPECT_NEAR(placed[cell], 8000 / 15, 30) << cell;
  }
}

TEST(CellPicker, WhenAllAreFullTheEmptiestIsAsked) {
  CellPicker picker({.cells = 2});
  picker.Report(0, LoadOf(10, 14));
  picker.Report(1, LoadOf(10, 12));
  for (uint64_t key = 1; key < 3; ++key) EXPECT_EQ(picker.Place(kModel, key), 1u);
  EXPECT_EQ(picker.Place(kModel, 0, {1}), 0u);
}

TEST(CellPicker, AFullCellIsPassedOverWhileAnotherHasRoom) {
  CellPicker picker = PickerOf(3, 100);
  picker.Report(0, LoadOf(100, 100));
  picker.Report(1, LoadOf(100, 100));
  for (int i = 0; i < 50; ++i) EXPECT_EQ(picker.Place(kModel, 0), 2u);
}

TEST(CellPicker, ACellThatRefusedIsTakenForFullUntilItsNextReport) {
  CellPicker picker = PickerOf(2);
  picker.Report(1, LoadOf(1000, 500));
  picker.Refuse(0, kModel);
  EXPECT_EQ(picker.Place(kModel, 0), 1u);
  picker.Report(0, LoadOf(1000, 0));
  EXPECT_EQ(picker.Place(kModel, 0), 0u);
}

TEST(CellPicker, ALoadThatNoCellCanHaveIsNoticed) {
  CellPicker picker = PickerOf(2);
  EXPECT_TRUE(picker.CheckInvariants().ok()) << picker.CheckInvariants();
  picker.Report(1, LoadOf(1000, -1));
  EXPECT_TRUE(absl::IsInternal(picker.CheckInvariants()));
}

TEST(CellPicker, AReportReplacesWhatWasCountedSinceTheLast) {
  CellPicker picker({.cells = 2});
  picker.Report(0, LoadOf(10, 0));
  picker.Report(1, LoadOf(10, 5));
  for (int i = 0; i < 5; ++i) EXPECT_EQ(picker.Place(kModel, 0), 0u);
  picker.Report(0, LoadOf(10, 0));  // they have ended meanwhile
  EXPECT_EQ(picker.Place(kModel, 0), 0u);
}

}  // namespace
}  // namespace skein::scheduler
