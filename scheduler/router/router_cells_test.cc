// A router with three cells: where requests are placed, and what becomes of them when a cell
// refuses or is lost.
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "scheduler/router/router_core.h"

namespace skein::scheduler {
namespace {

constexpr TimeUs kLease = 3 * kSecondUs;
const char kModel[] = "m";

class RouterCellsTest : public ::testing::Test {
 protected:
  RouterCellsTest() { Do(Join{{.router = 7, .endpoint = "r:1"}}); }

  std::vector<RouterEffect> Do(const RouterEvent& event) {
    std::vector<RouterEffect> effects = core_.Handle(event, now_);
    EXPECT_TRUE(core_.CheckInvariants().ok()) << core_.CheckInvariants();
    return effects;
  }
  template <class T>
  static std::vector<T> Of(const std::vector<RouterEffect>& effects) {
    std::vector<T> found;
    for (const RouterEffect& effect : effects) {
      if (const T* one = std::get_if<T>(&effect)) found.push_back(*one);
    }
    return found;
  }

  static CellReport Room(int64_t capacity, int64_t held = 0, const std::string& model = kModel) {
    return {.models = {{model, {capacity, held}}}};
  }
  std::vector<RouterEffect> Welcome(size_t cell, CellReport report,
                                    std::vector<RequestId> unknown = {}) {
    return Do(Welcomed{{.generation = {1, {10 + cell}},
                        .lease_us = kLease,
                        .unknown = std::move(unknown),
                        .cell = std::move(report)},
                       cell});
  }
  void WelcomeAll() {
    for (size_t cell = 0; cell < 3; ++cell) Welcome(cell, Room(100));
  }
  std::vector<RouterEffect> Arrive(uint64_t serial, uint64_t affinity = 0,
                                   const std::string& model = kModel) {
    auto spec = std::make_shared<RequestHead>();
    spec->id = {7, serial};
    spec->model = model;
    spec->prompt_tokens = 3;
    spec->max_tokens = 4;
    return Do(Arrived{spec, {}, affinity});
  }
  // The cell that a request was submitted to; 9: none.
  static size_t CellOf(const std::vector<RouterEffect>& effects) {
    const auto submits = Of<SendSubmit>(effects);
    EXPECT_LE(submits.size(), 1u);
    return submits.empty() ? 9 : submits[0].cell;
  }
  std::vector<RouterEffect> Update(uint64_t serial, size_t cell, PlanUpdate update) {
    return Do(PlanUpdateReceived{{7, serial}, std::move(update), cell});
  }
  std::vector<RouterEffect> Place(uint64_t serial, size_t cell, uint64_t epoch = 5) {
    Update(serial, cell, Planned{{epoch}, {1}});
    return Update(serial, cell, Placed{{epoch}, {2}, absl::StrCat("d", cell, ":1")});
  }
  std::vector<RouterEffect> Token(uint64_t serial, uint64_t epoch, int64_t index) {
    return Do(TokenReceived{{7, serial}, {epoch}, index, 42, "payload", ""});
  }
  std::vector<RouterEffect> Break(size_t cell) {
    return Do(LinkBroken{absl::UnavailableError("connection lost"), cell});
  }
  // What comes while time passes; the streams that are opened break at once.
  std::vector<RouterEffect> Pass(TimeUs time) {
    std::vector<RouterEffect> all;
    const TimeUs end = now_ + time;
    while (core_.NextDeadline() <= end) {
      now_ = std::max(now_, core_.NextDeadline());
      for (RouterEffect& effect : Do(RouterTick{})) {
        if (const auto* open = std::get_if<OpenLink>(&effect)) Break(open->cell);
        if (const auto* report = std::get_if<SendRouterReport>(&effect)) {
          Do(RouterReportTaken{Room(100), report->cell});
        }
        all.push_back(std::move(effect));
      }
    }
    now_ = end;
    return all;
  }

  TimeUs now_ = 0;
  RouterCore core_{RouterConfig{.cells = 3, .max_streams = 100, .max_queued = 10}};
};

TEST_F(RouterCellsTest, EachOrchestratorGetsAStreamOfItsOwn) {
  RouterCore core(RouterConfig{.cells = 3});
  std::set<size_t> opened;
  for (const OpenLink& open : Of<OpenLink>(core.Handle(Join{{.router = 7}}, 0))) {
    opened.insert(open.cell);
  }
  EXPECT_EQ(opened, (std::set<size_t>{0, 1, 2}));
}

TEST_F(RouterCellsTest, RequestsGoWhereTheModelIsAndWhereThereIsRoom) {
  Welcome(0, Room(100, 0, "other"));
  Welcome(1, Room(100, 100));
  Welcome(2, Room(100));
  for (uint64_t serial = 1; serial <= 20; ++serial) EXPECT_EQ(CellOf(Arrive(serial)), 2u);
  EXPECT_EQ(CellOf(Arrive(21, 0, "other")), 0u);
  now_ += kSecondUs;
  for (const SendRouterReport& sent : Of<SendRouterReport>(Do(RouterTick{}))) {
    Do(RouterReportTaken{sent.cell == 1 ? Room(100) : Room(100, 100), sent.cell});
  }
  EXPECT_EQ(CellOf(Arrive(22)), 1u) << "as they said last";
}

TEST_F(RouterCellsTest, AKeyStaysInItsCell) {
  WelcomeAll();
  std::map<uint64_t, size_t> cells;
  std::set<size_t> used;
  for (uint64_t serial = 1; serial <= 40; ++serial) {
    const uint64_t key = 1 + serial % 8;
    const size_t cell = CellOf(Arrive(serial, key));
    used.insert(cell);
    EXPECT_EQ(cells.try_emplace(key, cell).first->second, cell);
  }
  EXPECT_GT(used.size(), 1u);
}

TEST_F(RouterCellsTest, AModelThatNoCellServesIsForACellToRefuse) {
  WelcomeAll();
  const size_t first = CellOf(Arrive(1, 0, "unknown"));
  const auto effects = Update(1, first, Failed{absl::NotFoundError("not served here")});
  const size_t second = CellOf(effects);
  EXPECT_NE(second, first);
  const size_t third = CellOf(Update(1, second, Failed{absl::NotFoundError("not served here")}));
  const auto ends = Of<End>(Update(1, third, Failed{absl::NotFoundError("not served here")}));
  ASSERT_EQ(ends.size(), 1u);
  EXPECT_TRUE(absl::IsNotFound(ends[0].status));
}

TEST_F(RouterCellsTest, AFullCellsRefusalIsOfferedToAnotherBeforeTheClientHearsOfIt) {
  WelcomeAll();
  const size_t full = CellOf(Arrive(1));
  const auto effects = Update(1, full, Failed{absl::ResourceExhaustedError("full")});
  const size_t other = CellOf(effects);
  EXPECT_NE(other, full);
  EXPECT_TRUE(Of<End>(effects).empty());
  const auto told = Of<SendRouterEnd>(effects);
  ASSERT_EQ(told.size(), 1u) << "the cell that refused forgets it";
  EXPECT_EQ(told[0].cell, full);
  EXPECT_EQ(core_.Snapshot().moved_refused, 1u);
  for (uint64_t serial = 2; serial <= 20; ++serial) {
    EXPECT_NE(CellOf(Arrive(serial)), full) << "it counts as full until it reports";
  }
  // What the first cell may still say is not heard.
  EXPECT_TRUE(Update(1, full, Planned{{9}, {1}}).empty());
  EXPECT_EQ(Of<OpenTokens>(Place(1, other)).size(), 1u);
}

TEST_F(RouterCellsTest, WhenAllAreFullTheClientIsToldSo) {
  WelcomeAll();
  size_t cell = CellOf(Arrive(1));
  std::set<size_t> tried;
  std::vector<RouterEffect> effects;
  while (tried.insert(cell).second && cell < 3) {
    // Where it is drained, there is no room either: the client hears of the room.
    effects = Update(1, cell,
                     Failed{tried.size() == 1 ? absl::ResourceExhaustedError("full")
                                              : absl::UnavailableError("draining")});
    cell = CellOf(effects);
  }
  EXPECT_EQ(tried.size(), 4u) << "all three, and none";
  ASSERT_EQ(Of<End>(effects).size(), 1u);
  EXPECT_EQ(Of<End>(effects)[0].status, absl::ResourceExhaustedError("full"));
}

TEST_F(RouterCellsTest, WhatFailedAfterItWasAcceptedIsNotTriedElsewhere) {
  WelcomeAll();
  for (const PlanUpdate& taken : {PlanUpdate(Accepted{}), PlanUpdate(Planned{{5}, {1}})}) {
    static uint64_t serial = 0;
    const size_t cell = CellOf(Arrive(++serial));
    EXPECT_EQ(Of<RequestAccepted>(Update(serial, cell, taken)).size(), 1u);
    const auto effects = Update(serial, cell, Failed{absl::UnavailableError("two engines failed")});
    EXPECT_EQ(Of<End>(effects).size(), 1u);
    EXPECT_EQ(CellOf(effects), 9u);
  }
}

TEST_F(RouterCellsTest, ACellThatCannotBeReachedGetsNothingNew) {
  WelcomeAll();
  Break(1);
  for (uint64_t serial = 1; serial <= 30; ++serial) {
    const size_t cell = CellOf(Arrive(serial));
    EXPECT_TRUE(cell == 0 || cell == 2) << cell;
  }
  EXPECT_EQ(core_.Snapshot().ready, (std::vector<bool>{true, false, true}));
}

TEST_F(RouterCellsTest, ALostCellsRequestsArePlacedElsewhereUnlessTheyStream) {
  WelcomeAll();
  std::map<size_t, std::vector<uint64_t>> in;
  for (uint64_t serial = 1; serial <= 12; ++serial) in[CellOf(Arrive(serial))].push_back(serial);
  ASSERT_GE(in[1].size(), 3u);
  const uint64_t streams = in[1][0], placed = in[1][1], waits = in[1][2];
  Place(streams, 1);
  Token(streams, 5, 0);
  Place(placed, 1);
  Update(waits, 1, Accepted{{{51}}});
  EXPECT_EQ(CellOf(Break(1)), 9u) << "it may come back within its lease";
  EXPECT_TRUE(Of<SendSubmit>(Pass(kLease - 1)).empty());
  std::map<RequestId, SendSubmit> moved;
  for (const SendSubmit& one : Of<SendSubmit>(Pass(1))) moved[one.spec->id] = one;
  EXPECT_EQ(moved.size(), in[1].size() - 2) << "those that are placed stay";
  EXPECT_EQ(core_.Snapshot().moved_lost, moved.size());
  ASSERT_EQ(moved.count({7, waits}), 1u);
  EXPECT_TRUE(moved.at({7, waits}).accepted) << "it must not be refused now";
  EXPECT_EQ(moved.at({7, waits}).failed_engines, FailedEngines{{51}})
      << "an engine failed in the lost cell";
  EXPECT_NE(moved.at({7, waits}).cell, 1u);
  EXPECT_EQ(Of<DeliverToken>(Token(streams, 5, 1)).size(), 1u);
  // What is placed moves when its token stream fails before the first token.
  const absl::Status lost = absl::UnavailableError("lost");
  const auto effects = Do(TokenStreamLost{{7, placed}, {5}, lost});
  EXPECT_NE(CellOf(effects), 9u);
  EXPECT_NE(CellOf(effects), 1u);
  EXPECT_EQ(Of<End>(Do(TokenStreamLost{{7, streams}, {5}, lost})).size(), 1u);
}

// Its new cell may give the same epoch: no token of the former run may reach the client.
TEST_F(RouterCellsTest, AMovedRequestHearsNothingOfItsFormerCell) {
  WelcomeAll();
  const size_t former = CellOf(Arrive(1));
  Update(1, former, Planned{{8}, {1}});
  Break(former);
  const size_t present = CellOf(Pass(kLease));
  ASSERT_LT(present, 3u);
  EXPECT_EQ(core_.StateOf({7, 1}), "submitted");
  const auto placed = Place(1, present, 5);
  ASSERT_EQ(Of<OpenTokens>(placed).size(), 1u) << "epochs are a cell's own";
  EXPECT_EQ(Of<OpenTokens>(placed)[0].endpoint, absl::StrCat("d", present, ":1"));
  EXPECT_EQ(Of<OpenTokens>(placed)[0].cell, present) << "its instances' ids are its own";
  // The former one comes back: it is told of no such request, and that it has ended there.
  now_ += kSecondUs;
  std::optional<RouterHello> hello;
  for (const OpenLink& open : Of<OpenLink>(Do(RouterTick{}))) {
    if (open.cell == former) hello = open.hello;
  }
  ASSERT_TRUE(hello.has_value());
  EXPECT_TRUE(hello->requests.empty());
  ASSERT_EQ(hello->ended.size(), 1u);
  EXPECT_EQ(hello->ended[0].id, (RequestId{7, 1}));
  Welcome(former, Room(100));
  EXPECT_TRUE(Update(1, former, Placed{{9}, {2}, "x:1"}).empty());
  EXPECT_EQ(Of<DeliverToken>(Token(1, 5, 0)).size(), 1u);
}

// What it was told of the end there may still be on its way.
TEST_F(RouterCellsTest, ARequestDoesNotReturnToACellThatItLeft) {
  WelcomeAll();
  const size_t first = CellOf(Arrive(1));
  Break(first);
  const size_t second = CellOf(Pass(kLease));
  ASSERT_LT(second, 3u);
  const size_t third = 3 - first - second;
  now_ += kSecondUs;
  Do(RouterTick{});
  Welcome(first, Room(100));
  Break(third);
  Break(second);
  EXPECT_TRUE(Of<SendSubmit>(Pass(10 * kSecondUs)).empty());
  now_ += kSecondUs;
  Do(RouterTick{});
  EXPECT_EQ(CellOf(Welcome(third, Room(100))), third);
}

TEST_F(RouterCellsTest, ACellThatComesBackWithinItsLeaseKeepsItsRequests) {
  WelcomeAll();
  const size_t cell = CellOf(Arrive(1));
  Update(1, cell, Accepted{});
  Break(cell);
  now_ += kSecondUs;
  EXPECT_FALSE(Of<OpenLink>(Do(RouterTick{})).empty());
  EXPECT_TRUE(Of<SendSubmit>(Welcome(cell, Room(100))).empty()) << "it is known there";
  EXPECT_TRUE(Of<SendSubmit>(Pass(10 * kSecondUs)).empty());
  EXPECT_EQ(Of<OpenTokens>(Place(1, cell)).size(), 1u);
}

TEST_F(RouterCellsTest, ReplansStayInTheCell) {
  WelcomeAll();
  const size_t cell = CellOf(Arrive(1));
  Place(1, cell);
  EXPECT_TRUE(Do(TokenStreamLost{{7, 1}, {5}, absl::UnavailableError("lost")}).empty());
  EXPECT_EQ(Of<OpenTokens>(Place(1, cell, 6)).size(), 1u);
}

TEST_F(RouterCellsTest, WhatNoCellCanTakeWaitsForTheFirstThatCan) {
  Welcome(0, Room(100, 0, "other"));
  Welcome(1, Room(100));
  Break(1);
  EXPECT_EQ(CellOf(Arrive(1)), 9u) << "the cell of its model may come back";
  EXPECT_EQ(CellOf(Arrive(2)), 9u);
  EXPECT_EQ(CellOf(Welcome(2, Room(100, 0, "other"))), 9u);
  now_ += kSecondUs;
  Do(RouterTick{});
  std::set<RequestId> placed;
  for (const SendSubmit& one : Of<SendSubmit>(Do(RouterReportTaken{Room(100), 2}))) {
    EXPECT_EQ(one.cell, 2u);
    placed.insert(one.spec->id);
  }
  EXPECT_EQ(placed.size(), 2u) << "instances of its model came to another cell";
}

TEST_F(RouterCellsTest, TheWaitForACellIsBounded) {
  WelcomeAll();
  const size_t cell = CellOf(Arrive(1));
  ASSERT_LT(cell, 3u);
  for (const size_t each : {0, 1, 2}) Break(each);
  EXPECT_EQ(CellOf(Arrive(2)), 9u);
  const auto ends = Of<End>(Pass(31 * kSecondUs));
  ASSERT_EQ(ends.size(), 2u);
  for (const End& end : ends) {
    EXPECT_TRUE(absl::IsUnavailable(end.status)) << end.status;
    EXPECT_NE(end.status.message().find("connection lost"), absl::string_view::npos) << end.status;
  }
}

TEST_F(RouterCellsTest, TheRouterLeavesAllCells) {
  WelcomeAll();
  EXPECT_EQ(Of<SendRouterGoodbye>(Do(Leave{})).size(), 3u);
  EXPECT_TRUE(Of<RouterHasLeft>(Do(RouterGoodbyeTaken{0})).empty());
  EXPECT_TRUE(Of<RouterHasLeft>(Do(RouterGoodbyeTaken{2})).empty());
  EXPECT_EQ(Of<RouterHasLeft>(Do(RouterGoodbyeTaken{1})).size(), 1u);
}

TEST_F(RouterCellsTest, ACellThatIsNoneIsPassedOver) {
  WelcomeAll();
  EXPECT_TRUE(Do(LinkBroken{absl::OkStatus(), 3}).empty());
  EXPECT_TRUE(Do(Welcomed{{}, 3}).empty());
}

}  // namespace
}  // namespace skein::scheduler
