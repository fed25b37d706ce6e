#include "services/orchestrator_link/drain_orders.h"

#include <chrono>
#include <utility>

#include "grpcpp/grpcpp.h"
#include "proto/orchestrator.grpc.pb.h"

namespace skein::services {
namespace {

constexpr int64_t kTimeoutUs = 1'000'000;

}  // namespace

DrainOrders::DrainOrders(CallTracker* calls, Leader leader)
    : calls_(calls), leader_(std::move(leader)) {}

void DrainOrders::Know(const v1::DrainRequest& self) {
  {
    std::lock_guard lock(mutex_);
    self_ = self;
  }
  Tell();
}

absl::Status DrainOrders::MayDrain() {
  v1::DrainRequest request;
  {
    std::lock_guard lock(mutex_);
    if (!self_.has_value()) return absl::OkStatus();
    request = *self_;
  }
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::microseconds(kTimeoutUs));
  v1::DrainResponse response;
  const grpc::Status asked =
      v1::Orchestrator::NewStub(leader_())->Drain(&context, request, &response);
  if (asked.error_code() != grpc::StatusCode::FAILED_PRECONDITION) return absl::OkStatus();
  return absl::FailedPreconditionError(asked.error_message());
}

void DrainOrders::Order(bool drain) {
  {
    std::lock_guard lock(mutex_);
    order_ = drain;
    ++orders_;
  }
  Tell();
}

void DrainOrders::Tell() {
  v1::DrainRequest request;
  uint64_t order = 0;
  {
    std::lock_guard lock(mutex_);
    if (!order_.has_value() || telling_ || !self_.has_value()) return;
    telling_ = true;
    order = orders_;
    request = *self_;
    request.set_undo(!*order_);
    request.set_force(true);
  }
  CallUnary<v1::Orchestrator>(
      "orchestrator", leader_(), &v1::Orchestrator::StubInterface::async_interface::Drain, calls_,
      std::move(request), kTimeoutUs,
      [this, order](const absl::Status& status, const v1::DrainResponse&) { Told(status, order); });
}

void DrainOrders::Told(const absl::Status& status, uint64_t order) {
  bool again = false;
  {
    std::lock_guard lock(mutex_);
    telling_ = false;
    if (status.ok() && order == orders_) order_.reset();
    again = status.ok() && order_.has_value();
  }
  if (again) Tell();
}

bool DrainOrders::Contradicts(bool drain) {
  std::lock_guard lock(mutex_);
  return order_.has_value() && *order_ != drain;
}

}  // namespace skein::services
