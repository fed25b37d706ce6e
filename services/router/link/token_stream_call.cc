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

bool TokenStreamCall::Writable() {
  if (over_) return false;
  std::lock_guard lock(mu_);
  wanted_ = writing_;
  return !writing_;
}

void TokenStreamCall::Write(v1::TokenStreamRequest request) {
  std::lock_guard lock(mu_);
  writing_ = true;
  request_ = std::move(request);
  StartWrite(&request_);
}

void TokenStreamCall::Close() {
  if (std::exchange(closed_, true)) return;
  context_.TryCancel();
  std::unique_lock lock(mu_);
  const bool paused = !reading_ && !ended_;
  lock.unlock();
  if (paused) NothingFollows();
}

void TokenStreamCall::OnReadDone(bool ok) {
  bool first = false;
  {
    std::lock_guard lock(mu_);
    if (ok) {
      first = arrived_.Add(std::move(batch_));
      batch_.Clear();
    }
    ended_ = !ok;
    reading_ = ok && arrived_.HasRoom();
    if (reading_) StartRead(&batch_);
  }
  if (!ok) return loop_->Post([self = self_] { self->NothingFollows(); });
  if (first) loop_->Post([self = self_] { self->Deal(); }, Loop::kHelp);
}

void TokenStreamCall::OnWriteDone(bool) {
  std::unique_lock lock(mu_);
  writing_ = false;
  const bool wanted = std::exchange(wanted_, false);
  lock.unlock();
  if (!wanted) return;
  loop_->Post([self = self_] {
    if (!self->closed_ && !self->over_) self->hooks_.writable();
  });
}

void TokenStreamCall::Deal() {
  std::unique_lock lock(mu_);
  const std::vector<v1::TokenBatch> batches = arrived_.TakeAll();
  lock.unlock();
  for (const v1::TokenBatch& batch : batches) {
    if (!closed_) hooks_.batch(batch);
  }
  lock.lock();
  if (over_ || reading_ || ended_) return;
  reading_ = !closed_;
  if (reading_) return StartRead(&batch_);
  lock.unlock();
  NothingFollows();
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
