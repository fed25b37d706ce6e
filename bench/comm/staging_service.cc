#include "bench/comm/staging_service.h"

#include <chrono>
#include <optional>

namespace skein::bench {
namespace {

scheduler::TimeUs Now() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

scheduler::StagingRequest RequestOf(uint64_t request) { return {{1, request}, {1}}; }

grpc::ServerUnaryReactor* Answer(grpc::CallbackServerContext* context, const grpc::Status& status) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  reactor->Finish(status);
  return reactor;
}

}  // namespace

grpc::ServerUnaryReactor* StagingService::Open(grpc::CallbackServerContext* context,
                                               const OpenRequest* request, OpenResponse*) {
  const std::lock_guard lock(mutex_);
  queue_ = std::make_unique<scheduler::StagingBufferQueue>(static_cast<int>(request->buffers()));
  blocks_.resize(request->blocks());
  for (size_t i = 0; i < blocks_.size(); ++i) blocks_[i] = {static_cast<int32_t>(i)};
  return Answer(context, grpc::Status::OK);
}

grpc::ServerUnaryReactor* StagingService::Ask(grpc::CallbackServerContext* context,
                                              const AskRequest* request, AskResponse* response) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  const std::lock_guard lock(mutex_);
  waiting_.push_back({request->writer(), response, reactor});
  AnswerWaiting(RequestOf(request->request()));
  return reactor;
}

void StagingService::AnswerWaiting(const scheduler::StagingRequest& request) {
  std::erase_if(waiting_, [&](const Waiting& waiting) {
    const std::optional<int> buffer = queue_->Acquire(request, {waiting.writer}, Now());
    if (!buffer.has_value()) return false;
    waiting.response->set_buffer(*buffer);
    waiting.response->set_slots(receiver_->slots());
    waiting.response->set_memory(receiver_->Description(*buffer));
    waiting.reactor->Finish(grpc::Status::OK);
    return true;
  });
}

grpc::ServerUnaryReactor* StagingService::Take(grpc::CallbackServerContext* context,
                                               const TakeRequest* request, TakeResponse*) {
  std::vector<StagedBlock> part;
  for (const TakeRequest::Block& block : request->blocks()) {
    part.push_back({block.slot(), block.layer(), block.global()});
  }
  const absl::Status taken = receiver_->Take(request->buffer(), part, blocks_);
  return Answer(context, taken.ok() ? grpc::Status::OK
                                    : grpc::Status(grpc::StatusCode::INVALID_ARGUMENT,
                                                   std::string(taken.message())));
}

grpc::ServerUnaryReactor* StagingService::Finish(grpc::CallbackServerContext* context,
                                                 const FinishRequest* request, FinishResponse*) {
  const std::lock_guard lock(mutex_);
  queue_->Finished(RequestOf(request->request()), {request->writer()}, Now());
  AnswerWaiting(RequestOf(request->request()));
  return Answer(context, grpc::Status::OK);
}

}  // namespace skein::bench
