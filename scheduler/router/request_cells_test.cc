#include "scheduler/router/request_cells.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <variant>

namespace skein::scheduler {
namespace {

using State = ClientRequest::State;
using Known = ClientRequest::Known;

constexpr TimeUs kReplanWait = 50;
constexpr TimeUs kOrchestratorWait = 400;

class RequestCellsTest : public ::testing::Test {
 protected:
  RequestCellsTest() { cells_.On(Join{{.router = 7, .endpoint = "r:1"}}); }

  void Welcome(size_t cell, std::vector<RequestId> unknown = {}) {
    cells_.RunSessions();  // its stream is opened
    cells_.On(Welcomed{{.generation = {1, {10 + cell}},
                        .lease_us = 3 * kSecondUs,
                        .unknown = std::move(unknown),
                        .cell = {.models = {{"m", {100, 0}}}}},
                       cell});
    Check();
  }
  void Break(size_t cell) {
    cells_.On(LinkBroken{absl::UnavailableError("connection lost"), cell});
    Check();
  }
  // A request that was admitted, and is submitted.
  ClientRequest& Submit(uint64_t serial) {
    auto spec = std::make_shared<RequestHead>();
    spec->id = {7, serial};
    spec->model = "m";
    ClientRequest request;
    request.spec = std::move(spec);
    requests_.Add(std::move(request));
    ClientRequest& admitted = *requests_.Admit(now_);
    effects_.clear();
    cells_.Submit(admitted);
    Check();
    return admitted;
  }
  void Stream(ClientRequest& request) {
    request.known = Known::kTaken;
    requests_.SetState(request, State::kStreaming);
    Check();
  }
  void Lose(ClientRequest& request) {
    requests_.SetState(request, State::kStreamOver);
    request.lost = absl::UnavailableError("stream lost");
    cells_.AwaitReplan(request);
    Check();
  }
  template <class T>
  std::vector<T> Of() const {
    std::vector<T> found;
    for (const RouterEffect& effect : effects_) {
      if (const T* one = std::get_if<T>(&effect)) found.push_back(*one);
    }
    return found;
  }
  void Check() const {
    EXPECT_TRUE(cells_.CheckInvariants().ok()) << cells_.CheckInvariants();
    EXPECT_TRUE(requests_.CheckInvariants().ok()) << requests_.CheckInvariants();
  }

  TimeUs now_ = 0;
  std::vector<RouterEffect> effects_;
  RouterSnapshot snapshot_;
  ClientRequests requests_{{.max_streams = 10, .max_queued = 10}, &snapshot_};
  RequestCells cells_{
      {.cells = 2, .replan_wait_us = kReplanWait, .orchestrator_wait_us = kOrchestratorWait},
      {.now = &now_, .requests = &requests_, .snapshot = &snapshot_, .effects = &effects_}};
};

TEST_F(RequestCellsTest, ARequestWaitsUntilACellIsReady) {
  ClientRequest& request = Submit(1);
  EXPECT_EQ(request.known, Known::kUnsent);
  EXPECT_FALSE(request.cell.has_value());
  EXPECT_EQ(cells_.TakeOverdue(), std::nullopt);
  Welcome(1);
  EXPECT_TRUE(snapshot_.ready[1]);
  EXPECT_EQ(request.known, Known::kSent);
  ASSERT_EQ(Of<SendSubmit>().size(), 1u);
  EXPECT_EQ(Of<SendSubmit>()[0].cell, 1u);
}

TEST_F(RequestCellsTest, ItDoesNotWaitForever) {
  Submit(1);
  now_ = kOrchestratorWait - 1;
  EXPECT_EQ(cells_.TakeOverdue(), std::nullopt);
  now_ = kOrchestratorWait;
  EXPECT_EQ(cells_.TakeOverdue(), (RequestId{7, 1}));
}

TEST_F(RequestCellsTest, ARefusedRequestMovesAndNeverReturns) {
  Welcome(0);
  Welcome(1);
  ClientRequest& request = Submit(1);
  const size_t first = *request.cell;
  effects_.clear();
  EXPECT_TRUE(cells_.MoveRefused(request, absl::ResourceExhaustedError("full")));
  Check();
  EXPECT_EQ(request.cell, 1 - first);
  EXPECT_EQ(request.left, std::set<size_t>{first});
  EXPECT_EQ(snapshot_.moved_refused, 1u);
  EXPECT_EQ(Of<SendSubmit>().at(0).moves, 1u) << "the next one is told";
  ASSERT_EQ(Of<SendRouterEnd>().size(), 1u) << "the cell that it left hears of it";
  EXPECT_EQ(Of<SendRouterEnd>()[0].cell, first);
  EXPECT_FALSE(cells_.MoveRefused(request, absl::ResourceExhaustedError("full")));
}

TEST_F(RequestCellsTest, AStreamThatEndedEarlyWaitsForItsNextPlan) {
  Welcome(0);
  ClientRequest& request = Submit(1);
  Stream(request);
  Lose(request);
  now_ = kReplanWait;
  EXPECT_EQ(cells_.TakeOverdue(), (RequestId{7, 1}));
}

TEST_F(RequestCellsTest, WhatANewOrchestratorDoesNotKnowIsSubmittedAnewUnlessItStreams) {
  Welcome(0);
  ClientRequest& submitted = Submit(1);
  ClientRequest& streaming = Submit(2);
  Stream(streaming);
  Break(0);
  EXPECT_FALSE(snapshot_.ready[0]);
  now_ = 10 * kSecondUs;
  effects_.clear();
  Welcome(0, {{7, 1}, {7, 2}});
  ASSERT_EQ(Of<SendSubmit>().size(), 1u);
  EXPECT_EQ(Of<SendSubmit>()[0].spec->id.serial, 1u);
  EXPECT_EQ(submitted.known, Known::kSent);
  EXPECT_EQ(streaming.known, Known::kUnknown);
  EXPECT_EQ(streaming.state, State::kStreaming);
}

TEST_F(RequestCellsTest, WhatAnOrchestratorKnowsIsNotRefusedAnyMore) {
  Welcome(0);
  ClientRequest& request = Submit(1);
  Break(0);
  now_ = 10 * kSecondUs;
  Welcome(0);
  EXPECT_EQ(request.known, Known::kTaken);
}

TEST_F(RequestCellsTest, AForgottenRequestIsToldToItsCellAndWaitsNoMore) {
  Welcome(0);
  ClientRequest& request = Submit(1);
  Break(0);
  cells_.Forget(request, {.id = {7, 1}});
  requests_.Erase(request, now_);
  Check();
  now_ = kOrchestratorWait;
  EXPECT_EQ(cells_.TakeOverdue(), std::nullopt);
}

}  // namespace
}  // namespace skein::scheduler
