#include "services/worker/decode/token_call.h"

#include <utility>

namespace skein::services {

std::shared_ptr<TokenCall> TokenCall::Make(Hooks hooks) {
  std::shared_ptr<TokenCall> call(new TokenCall(std::move(hooks)));
  call->self_ = call;
  return call;
}

void TokenCall::Next() {
  std::lock_guard lock(mu_);
  if (closing_) return;
  StartRead(&request_);
}

bool TokenCall::Writable() {
  std::lock_guard lock(mu_);
  if (closing_) return false;
  wanted_ = writing_;
  return !writing_;
}

void TokenCall::Write(v1::TokenBatch batch) {
  std::lock_guard lock(mu_);
  if (closing_) return;
  writing_ = true;
  batch_ = std::move(batch);
  StartWrite(&batch_);
}

void TokenCall::Close(grpc::Status status) { StartClosing(std::move(status)); }

bool TokenCall::StartClosing(grpc::Status status) {
  std::lock_guard lock(mu_);
  if (std::exchange(closing_, true)) return false;
  status_ = std::move(status);
  FinishIfIdle();
  return true;
}

void TokenCall::FinishIfIdle() {
  if (writing_ || std::exchange(finished_, true)) return;
  Finish(status_);
}

void TokenCall::OnReadDone(bool ok) {
  if (ok) return hooks_.request();
  // gRPC does not tell a message that it cannot parse from a half-close, or from a peer that left.
  if (StartClosing({grpc::StatusCode::INVALID_ARGUMENT,
                    "a message is not of this method's type, or the stream was half-closed: cancel "
                    "the call to end it"})) {
    hooks_.closed();
  }
}

void TokenCall::OnWriteDone(bool) {
  bool wanted = false;
  {
    std::lock_guard lock(mu_);
    writing_ = false;
    batch_.Clear();
    if (closing_) return FinishIfIdle();
    wanted = std::exchange(wanted_, false);
  }
  if (wanted) hooks_.writable();
}

void TokenCall::OnCancel() {
  if (StartClosing(grpc::Status::CANCELLED)) hooks_.closed();
}

void TokenCall::OnDone() {
  std::shared_ptr<TokenCall> self;  // released last, after the lock
  std::lock_guard lock(mu_);
  self = std::move(self_);
}

}  // namespace skein::services
