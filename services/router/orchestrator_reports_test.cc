#include "services/router/orchestrator_reports.h"

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <vector>

#include "gtest/gtest.h"
#include "proto/orchestrator.grpc.pb.h"

namespace skein::services {
namespace {

// An orchestrator that remembers what routers report.
class Listener final : public v1::Orchestrator::CallbackService {
 public:
  grpc::ServerUnaryReactor* ReportRouter(grpc::CallbackServerContext* context,
                                         const v1::RouterReport* request,
                                         v1::RouterReportResponse* response) override {
    grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
    {
      std::lock_guard lock(mutex_);
      reports_.push_back(*request);
      if (drain_.has_value()) response->set_drain(*drain_);
      reactor->Finish(refuse_ ? grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "full")
                              : grpc::Status::OK);
    }
    changed_.notify_all();
    return reactor;
  }
  grpc::ServerUnaryReactor* Drain(grpc::CallbackServerContext* context,
                                  const v1::DrainRequest* request, v1::DrainResponse*) override {
    grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
    std::lock_guard lock(mutex_);
    if (!request->force()) {
      reactor->Finish({grpc::StatusCode::FAILED_PRECONDITION, "the last one"});
    } else if (refuse_) {
      reactor->Finish({grpc::StatusCode::UNAVAILABLE, "away"});
    } else {
      drain_ = request->router() == 7 && !request->undo();
      reactor->Finish(grpc::Status::OK);
    }
    return reactor;
  }
  bool draining() {
    std::lock_guard lock(mutex_);
    return drain_ == true;
  }
  void Refuse(bool refuse) {
    std::lock_guard lock(mutex_);
    refuse_ = refuse;
  }
  void Order(bool drain) {
    std::lock_guard lock(mutex_);
    drain_ = drain;
  }
  // Waits until one of the reports from `first` on is as `is` says; its place.
  template <typename Is>
  size_t Await(size_t first, Is is) {
    std::unique_lock lock(mutex_);
    size_t i = first;
    changed_.wait(lock, [&] {
      while (i < reports_.size() && !is(reports_[i])) ++i;
      return i < reports_.size();
    });
    return i;
  }
  size_t size() {
    std::lock_guard lock(mutex_);
    return reports_.size();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<v1::RouterReport> reports_;
  std::optional<bool> drain_;
  bool refuse_ = false;
};

class OrchestratorReportsTest : public ::testing::Test {
 protected:
  OrchestratorReportsTest() : server_(*ServeRpc("127.0.0.1:0", {&listener_})) {}
  ~OrchestratorReportsTest() override {
    reports_.reset();
    server_.server->Shutdown(std::chrono::system_clock::now());
  }
  void Start() {
    v1::RouterReport identity;
    identity.set_router(7);
    identity.set_endpoint("r:80");
    reports_.emplace(
        &channels_, "127.0.0.1:" + std::to_string(server_.port),
        OrchestratorReports::Self{.identity = identity,
                                  .load = [](v1::RouterReport* report) { report->set_running(3); },
                                  .drain =
                                      [this](bool drain) {
                                        std::lock_guard lock(mutex_);
                                        ordered_ = drain;
                                        changed_.notify_all();
                                      }},
        ended_);
  }
  void End(uint64_t serial) {
    v1::RouterEnded ended;
    ended.mutable_id()->set_serial(serial);
    ended_->Add(std::move(ended));
  }
  static auto Tells(uint64_t serial) {
    return [serial](const v1::RouterReport& report) {
      for (const v1::RouterEnded& one : report.ended()) {
        if (one.id().serial() == serial) return true;
      }
      return false;
    };
  }

  Listener listener_;
  RpcServer server_;
  Channels channels_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<bool> ordered_;  // guarded by mutex_
  const std::shared_ptr<EndedRequests> ended_ = std::make_shared<EndedRequests>();
  std::optional<OrchestratorReports> reports_;
};

TEST_F(OrchestratorReportsTest, ReportsGoOnAndTheFinalOneLeaves) {
  Start();
  const auto of_us = [](const v1::RouterReport& report) {
    return report.router() == 7 && report.endpoint() == "r:80" && report.running() == 3 &&
           !report.leaving();
  };
  listener_.Await(listener_.Await(0, of_us) + 1, of_us);
  reports_.reset();
  listener_.Await(0, [](const v1::RouterReport& report) { return report.leaving(); });
}

// What the orchestrator orders does not count before it has heard of the order that came here.
TEST_F(OrchestratorReportsTest, AnOrderThatCameHereIsToldUntilItIsHeard) {
  listener_.Order(false);
  listener_.Refuse(true);
  Start();
  EXPECT_TRUE(absl::IsFailedPrecondition(reports_->MayDrain()));
  reports_->OrderDrain(true);
  const auto any = [](const v1::RouterReport&) { return true; };
  listener_.Await(listener_.size() + 1, any);
  EXPECT_FALSE(listener_.draining());
  listener_.Refuse(false);
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return ordered_ == true; });
  EXPECT_TRUE(listener_.draining());
}

TEST_F(OrchestratorReportsTest, WhatWasNotHeardIsToldAgain) {
  listener_.Refuse(true);
  Start();
  End(1);
  const size_t refused = listener_.Await(0, Tells(1));
  listener_.Refuse(false);
  const size_t heard = listener_.Await(refused + 1, Tells(1));
  End(2);
  const size_t second = listener_.Await(heard + 1, Tells(2));
  EXPECT_GT(second, heard);
}

TEST_F(OrchestratorReportsTest, AnOrderIsPassedOn) {
  for (const bool drain : {true, false}) {
    listener_.Order(drain);
    if (!reports_.has_value()) Start();
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return ordered_ == drain; });
  }
}

}  // namespace
}  // namespace skein::services
