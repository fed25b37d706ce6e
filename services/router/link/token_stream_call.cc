#include "services/router/link/token_stream_call.h"

#include <utility>

#include "services/rpc/rpc.h"

namespace skein::services {

TokenStreamCall::TokenStreamCall(const std::shared_ptr<grpc::Channel>& channel, Loop* loop,
                                 Hooks hooks)
    : loop_(loop), hooks_(std::move(hooks)), stub_(v1::DecodeWorker::NewStub(channel)) {}

std::shared_ptr<TokenStreamCall> TokenStreamCall::Open(
    const std::shared_ptr<grpc::Channel>& channel, Loop* loop, Hooks hooks) {
  std::shared_ptr<TokenStreamCall> call(new TokenStreamCall(channel, loop, std::move(hooks)));
  call->self_ = call;
  call->stub_->async()->StreamTokens(&call->context_, call.get());
  call->AddHold();  // reads and writes are started from the loop
  call->StartRead(&call->batch_);
  call->StartCall();
  return call;
}

void TokenStreamCall::Write(v1::TokenStreamRequest request) {
  writing_ = true;
  request_ = std::move(request);
  StartWrite(&request_);
}

void TokenStreamCall::Close() {
  if (std::exchange(closed_, true)) return;
  context_.TryCancel();
  if (idle_) NothingFollows();
}

void TokenStreamCall::OnReadDone(bool ok) {
  loop_->Post([self = self_, ok] { ok ? self->Deal() : self->NothingFollows(); });
}

void TokenStreamCall::OnWriteDone(bool) {
  loop_->Post([self = self_] {
    self->writing_ = false;
    if (!self->closed_ && !self->over_) self->hooks_.writable();
  });
}

void TokenStreamCall::Deal() {
  idle_ = true;
  if (!closed_) hooks_.batch(batch_);
  if (closed_) return NothingFollows();
  idle_ = false;
  StartRead(&batch_);
}

// No read is under way and none will be; a write may be. From here on gRPC may finish the call.
void TokenStreamCall::NothingFollows() {
  if (!std::exchange(over_, true)) RemoveHold();
}

void TokenStreamCall::OnDone(const grpc::Status& status) {
  loop_->Post([self = self_, status] {
    if (!std::exchange(self->closed_, true)) {
      self->hooks_.ended(EndOfCall(status, "decode-worker", self->context_));
    }
    self->hooks_.batch = nullptr;  // they may own what owns this
    self->hooks_.writable = nullptr;
    self->hooks_.ended = nullptr;
  });
  const std::function<void()> done = hooks_.done;
  self_.reset();
  done();
}

}  // namespace skein::services
