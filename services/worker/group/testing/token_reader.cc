#include "services/worker/group/testing/token_reader.h"

#include <utility>

#include "grpcpp/grpcpp.h"
#include "services/codec/codec.h"

namespace skein::services::testing {

TokenReader::TokenReader(const std::string& endpoint,
                         std::function<void(const v1::TokenBatch::Sequence&)> told)
    : stub_(v1::DecodeWorker::NewStub(
          grpc::CreateChannel(endpoint, grpc::InsecureChannelCredentials()))),
      stream_(stub_->StreamTokens(&context_)),
      thread_([this, told = std::move(told)] {
        for (v1::TokenBatch batch; stream_->Read(&batch);) {
          for (const v1::TokenBatch::Sequence& one : batch.sequences()) told(one);
        }
        why_ = stream_->Finish().error_message();
        ended_ = true;
      }) {}

TokenReader::~TokenReader() {
  context_.TryCancel();
  thread_.join();
}

void TokenReader::Attach(scheduler::RequestId id, uint64_t epoch) {
  v1::TokenStreamRequest request;
  auto* attach = request.add_attach();
  *attach->mutable_id() = ToProto(id);
  attach->set_epoch(epoch);
  attach->set_credit(1 << 20);
  attach->set_ahead(true);
  stream_->Write(request);
}

}  // namespace skein::services::testing
