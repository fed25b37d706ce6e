#include "services/router/orchestrator_reports.h"

#include <chrono>
#include <utility>

#include "proto/orchestrator.grpc.pb.h"
#include "services/base/loop.h"

namespace skein::services {
namespace {

constexpr auto kInterval = std::chrono::milliseconds(500);
constexpr auto kSpacing = std::chrono::milliseconds(50);  // between two reports
constexpr auto kTimeout = std::chrono::milliseconds(1000);
constexpr size_t kEndedMax = 4096;

}  // namespace

void EndedRequests::Add(v1::RouterEnded ended) {
  {
    std::lock_guard lock(mutex_);
    if (ended_.size() >= kEndedMax) ended_.pop_front();
    ended_.push_back(std::move(ended));
  }
  changed_.notify_all();
}

OrchestratorReports::OrchestratorReports(Channels* channels, std::string orchestrator, Self self,
                                         std::shared_ptr<EndedRequests> ended)
    : channels_(channels),
      orchestrator_(std::move(orchestrator)),
      self_(std::move(self)),
      started_us_(MonotonicUs()),
      ended_(std::move(ended)),
      thread_([this] { Run(); }) {}

OrchestratorReports::~OrchestratorReports() {
  {
    std::lock_guard lock(ended_->mutex_);
    ended_->stopping_ = true;
  }
  ended_->changed_.notify_all();
  thread_.join();
}

void OrchestratorReports::Run() {
  std::unique_lock lock(ended_->mutex_);
  while (!ended_->stopping_) {
    lock.unlock();
    Report(/*leaving=*/false);
    lock.lock();
    ended_->changed_.wait_for(lock, kSpacing, [this] { return ended_->stopping_; });
    ended_->changed_.wait_for(lock, kInterval - kSpacing, [this] {
      return ended_->stopping_ || !ended_->ended_.empty() ||
             (order_.has_value() && orders_ != tried_);
    });
  }
  lock.unlock();
  Report(/*leaving=*/true);
}

absl::Status OrchestratorReports::MayDrain() {
  const absl::Status asked = CallDrain(/*undo=*/false, /*force=*/false);
  return absl::IsFailedPrecondition(asked) ? asked : absl::OkStatus();
}

void OrchestratorReports::OrderDrain(bool drain) {
  {
    std::lock_guard lock(ended_->mutex_);
    order_ = drain;
    ++orders_;
  }
  ended_->changed_.notify_all();
}

absl::Status OrchestratorReports::CallDrain(bool undo, bool force) {
  v1::DrainRequest request;
  request.set_router(self_.identity.router());
  request.set_undo(undo);
  request.set_force(force);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kTimeout);
  v1::DrainResponse response;
  return FromGrpc(
      v1::Orchestrator::Stub(channels_->Get(orchestrator_)).Drain(&context, request, &response),
      "orchestrator");
}

// What is not heard is told again before the next report.
void OrchestratorReports::Tell() {
  std::optional<bool> order;
  {
    std::lock_guard lock(ended_->mutex_);
    order = order_;
    tried_ = orders_;
  }
  if (!order.has_value() || !CallDrain(!*order, /*force=*/true).ok()) return;
  std::lock_guard lock(ended_->mutex_);
  if (tried_ == orders_) order_.reset();
}

// What was not heard is told again.
void OrchestratorReports::Report(bool leaving) {
  if (!leaving) Tell();
  v1::RouterReport report = self_.identity;
  report.set_uptime_us(static_cast<uint64_t>(MonotonicUs() - started_us_));
  report.set_leaving(leaving);
  self_.load(&report);
  {
    std::lock_guard lock(ended_->mutex_);
    for (v1::RouterEnded& one : ended_->ended_) *report.add_ended() = std::move(one);
    ended_->ended_.clear();
  }
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kTimeout);
  v1::Orchestrator::Stub stub(channels_->Get(orchestrator_));
  v1::RouterReportResponse response;
  if (stub.ReportRouter(&context, report, &response).ok()) {
    std::unique_lock lock(ended_->mutex_);
    const bool obey = response.has_drain() && !order_.has_value();
    lock.unlock();
    if (obey) self_.drain(response.drain());
    return;
  }
  std::lock_guard lock(ended_->mutex_);
  for (int i = report.ended_size() - 1; i >= 0 && ended_->ended_.size() < kEndedMax; --i) {
    ended_->ended_.push_front(std::move(*report.mutable_ended(i)));
  }
}

}  // namespace skein::services
