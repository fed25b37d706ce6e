#include "services/router/testing/fake_jobs.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "services/rpc/status_map.h"

namespace skein::services::testing {
namespace {

constexpr auto kLong = std::chrono::seconds(30);
constexpr size_t kPieceBytes = 64 << 10;

grpc::Status NoFile(const std::string& id) {
  return {grpc::StatusCode::NOT_FOUND, "no file " + id};
}
// Whether a file or job is there for the request: it names no owner, or the right one.
template <class Request, class Thing>
bool Owns(const Request& request, const Thing& thing) {
  return !request.has_owner() || request.owner() == thing.owner();
}
grpc::Status NoJob(const std::string& id) { return {grpc::StatusCode::NOT_FOUND, "no job " + id}; }

}  // namespace

void FakeJobs::FailNext(int calls, absl::Status status) {
  std::lock_guard lock(mutex_);
  fail_calls_ = calls;
  failure_ = std::move(status);
}

void FakeJobs::FailAll(absl::Status status) {
  std::lock_guard lock(mutex_);
  failure_of_all_ = std::move(status);
}

absl::Status FakeJobs::Fails() {
  ++calls_;
  if (!failure_of_all_.ok()) return failure_of_all_;
  if (fail_calls_ == 0) return absl::OkStatus();
  --fail_calls_;
  return failure_;
}

void FakeJobs::Put(const std::string& id, const std::string& content) {
  std::lock_guard lock(mutex_);
  File& file = files_[id];
  file.file.set_id(id);
  file.file.set_name(id + ".jsonl");
  file.file.set_purpose("batch");
  file.file.set_bytes(content.size());
  file.file.set_created_s(now_s_++);
  file.content = content;
}

void FakeJobs::PutJob(const v1::JobStatus& job) {
  std::lock_guard lock(mutex_);
  jobs_[job.id()] = job;
  if (job.created_s() == 0) jobs_[job.id()].set_created_s(now_s_++);
}

std::map<std::string, FakeJobs::File> FakeJobs::files() {
  std::lock_guard lock(mutex_);
  return files_;
}

std::vector<v1::CreateJobRequest> FakeJobs::created() {
  std::lock_guard lock(mutex_);
  return created_;
}

int FakeJobs::calls() {
  std::lock_guard lock(mutex_);
  return calls_;
}

grpc::Status FakeJobs::CreateFile(grpc::ServerContext*,
                                  grpc::ServerReader<v1::CreateFileRequest>* reader,
                                  v1::StoredFile* response) {
  {
    std::lock_guard lock(mutex_);
    if (const absl::Status status = Fails(); !status.ok()) return ToGrpc(status);
  }
  File file;
  v1::CreateFileRequest message;
  while (reader->Read(&message)) {
    ++file.messages;
    if (message.has_header()) file.file = message.header();
    if (message.has_trailer()) file.trailer = message.trailer();
    file.content += message.content();
  }
  const bool ended = file.file.bytes() != 0 || file.trailer.has_value();
  const uint64_t bytes = file.trailer.has_value() ? file.trailer->bytes() : file.file.bytes();
  if (!ended || bytes != file.content.size()) {
    return {grpc::StatusCode::INVALID_ARGUMENT, "the content is not as the header says"};
  }
  if (file.trailer.has_value()) file.file.set_expires_s(file.trailer->expires_s());
  file.file.set_bytes(file.content.size());
  std::lock_guard lock(mutex_);
  file.file.set_created_s(now_s_++);
  *response = files_.try_emplace(file.file.id(), file).first->second.file;
  return grpc::Status::OK;
}

grpc::Status FakeJobs::GetFile(grpc::ServerContext*, const v1::FileId* id,
                               v1::StoredFile* response) {
  std::lock_guard lock(mutex_);
  if (const absl::Status status = Fails(); !status.ok()) return ToGrpc(status);
  const auto it = files_.find(id->id());
  if (it == files_.end() || !Owns(*id, it->second.file)) return NoFile(id->id());
  *response = it->second.file;
  return grpc::Status::OK;
}

grpc::Status FakeJobs::ListFiles(grpc::ServerContext*, const v1::ListFilesRequest* request,
                                 v1::ListFilesResponse* response) {
  std::lock_guard lock(mutex_);
  if (const absl::Status status = Fails(); !status.ok()) return ToGrpc(status);
  std::vector<v1::StoredFile> all;
  for (const auto& [id, file] : files_) {
    const bool wanted = (request->purpose().empty() || request->purpose() == file.file.purpose()) &&
                        Owns(*request, file.file);
    if (wanted) all.push_back(file.file);
  }
  std::sort(all.begin(), all.end(),
            [](const auto& a, const auto& b) { return a.created_s() > b.created_s(); });
  if (request->oldest_first()) std::reverse(all.begin(), all.end());
  auto it = all.begin();
  if (!request->after().empty()) {
    it = std::find_if(all.begin(), all.end(),
                      [&](const auto& file) { return file.id() == request->after(); });
    if (it == all.end()) return NoFile(request->after());
    ++it;
  }
  const size_t limit = request->limit() == 0 ? 10'000 : request->limit();
  for (; it != all.end() && static_cast<size_t>(response->files_size()) < limit; ++it) {
    *response->add_files() = *it;
  }
  response->set_more(it != all.end());
  return grpc::Status::OK;
}

grpc::Status FakeJobs::DeleteFile(grpc::ServerContext*, const v1::FileId* id,
                                  v1::DeleteFileResponse*) {
  std::lock_guard lock(mutex_);
  if (const absl::Status status = Fails(); !status.ok()) return ToGrpc(status);
  const auto it = files_.find(id->id());
  if (it == files_.end() || !Owns(*id, it->second.file)) return NoFile(id->id());
  files_.erase(it);
  return grpc::Status::OK;
}

grpc::Status FakeJobs::ReadFile(grpc::ServerContext*, const v1::FileId* id,
                                grpc::ServerWriter<v1::FileContent>* writer) {
  std::string content;
  {
    std::lock_guard lock(mutex_);
    if (const absl::Status status = Fails(); !status.ok()) return ToGrpc(status);
    const auto it = files_.find(id->id());
    if (it == files_.end() || !Owns(*id, it->second.file)) return NoFile(id->id());
    content = it->second.content;
  }
  for (size_t at = 0; at < content.size(); at += kPieceBytes) {
    v1::FileContent piece;
    piece.set_content(content.substr(at, kPieceBytes));
    if (!writer->Write(piece)) return grpc::Status::CANCELLED;
  }
  return grpc::Status::OK;
}

grpc::Status FakeJobs::CreateJob(grpc::ServerContext*, const v1::CreateJobRequest* request,
                                 v1::JobStatus* response) {
  std::lock_guard lock(mutex_);
  if (const absl::Status status = Fails(); !status.ok()) return ToGrpc(status);
  const auto input = files_.find(request->input_file());
  if (input == files_.end() || !Owns(*request, input->second.file)) {
    return NoFile(request->input_file());
  }
  created_.push_back(*request);
  v1::JobStatus& job = jobs_[request->id()];
  job.set_id(request->id());
  job.set_owner(request->owner());
  job.set_input_file(request->input_file());
  job.set_endpoint(request->endpoint());
  job.set_window_s(request->window_s());
  *job.mutable_metadata() = request->metadata();
  job.set_state(v1::JOB_STATE_VALIDATING);
  job.set_created_s(now_s_++);
  job.set_expires_s(job.created_s() + static_cast<int64_t>(job.window_s()));
  *response = job;
  return grpc::Status::OK;
}

grpc::Status FakeJobs::GetJob(grpc::ServerContext*, const v1::JobId* id, v1::JobStatus* response) {
  std::lock_guard lock(mutex_);
  if (const absl::Status status = Fails(); !status.ok()) return ToGrpc(status);
  const auto it = jobs_.find(id->id());
  if (it == jobs_.end() || !Owns(*id, it->second)) return NoJob(id->id());
  *response = it->second;
  return grpc::Status::OK;
}

grpc::Status FakeJobs::ListJobs(grpc::ServerContext*, const v1::ListJobsRequest* request,
                                v1::ListJobsResponse* response) {
  std::lock_guard lock(mutex_);
  if (const absl::Status status = Fails(); !status.ok()) return ToGrpc(status);
  std::vector<v1::JobStatus> all;
  all.reserve(jobs_.size());
  for (const auto& [id, job] : jobs_) {
    if (Owns(*request, job)) all.push_back(job);
  }
  std::sort(all.begin(), all.end(),
            [](const auto& a, const auto& b) { return a.created_s() > b.created_s(); });
  auto it = all.begin();
  if (!request->after().empty()) {
    it = std::find_if(all.begin(), all.end(),
                      [&](const auto& job) { return job.id() == request->after(); });
    if (it == all.end()) return NoJob(request->after());
    ++it;
  }
  const size_t limit = request->limit() == 0 ? 20 : request->limit();
  for (; it != all.end() && static_cast<size_t>(response->jobs_size()) < limit; ++it) {
    *response->add_jobs() = *it;
  }
  response->set_more(it != all.end());
  return grpc::Status::OK;
}

grpc::Status FakeJobs::CancelJob(grpc::ServerContext*, const v1::JobId* id,
                                 v1::JobStatus* response) {
  std::lock_guard lock(mutex_);
  if (const absl::Status status = Fails(); !status.ok()) return ToGrpc(status);
  const auto it = jobs_.find(id->id());
  if (it == jobs_.end() || !Owns(*id, it->second)) return NoJob(id->id());
  if (it->second.state() == v1::JOB_STATE_COMPLETED) {
    return {grpc::StatusCode::FAILED_PRECONDITION, "the job has ended"};
  }
  it->second.set_state(v1::JOB_STATE_CANCELLING);
  it->second.set_cancelling_s(now_s_++);
  *response = it->second;
  return grpc::Status::OK;
}

// ---- lines ----

grpc::Status FakeJobs::ComputeLines(
    grpc::ServerContext* context,
    grpc::ServerReaderWriter<v1::OrchestratorLines, v1::RouterLines>* stream) {
  {
    std::lock_guard lock(mutex_);
    if (!failure_of_all_.ok()) return ToGrpc(failure_of_all_);
    if (stopped_) return grpc::Status::CANCELLED;
    stream_ = stream;
    stream_context_ = context;
    changed_.notify_all();
  }
  v1::RouterLines message;
  while (stream->Read(&message)) {
    std::lock_guard lock(mutex_);
    if (message.message_case() == v1::RouterLines::MESSAGE_NOT_SET) continue;
    from_router_.push_back(message);
    changed_.notify_all();
  }
  std::lock_guard lock(mutex_);
  if (stream_ == stream) {
    stream_ = nullptr;
    stream_context_ = nullptr;
  }
  changed_.notify_all();
  return grpc::Status::OK;
}

v1::RouterLines FakeJobs::Next() {
  std::unique_lock lock(mutex_);
  if (!changed_.wait_for(lock, kLong, [this] { return !from_router_.empty(); })) return {};
  v1::RouterLines message = std::move(from_router_.front());
  from_router_.pop_front();
  return message;
}

void FakeJobs::Send(const v1::OrchestratorLines& message) {
  std::lock_guard lock(mutex_);
  if (stream_ != nullptr) stream_->Write(message);
}

void FakeJobs::GiveLine(const std::string& job, uint64_t line, const std::string& endpoint,
                        const std::string& body, uint64_t within_us, const std::string& owner) {
  v1::OrchestratorLines message;
  v1::OrchestratorLines::Order& order = *message.mutable_order();
  order.mutable_line()->set_job(job);
  order.mutable_line()->set_line(line);
  order.set_endpoint(endpoint);
  order.set_body(body);
  order.set_within_us(within_us);
  order.set_owner(owner);
  Send(message);
}

void FakeJobs::Keep(const v1::LineId& line) {
  v1::OrchestratorLines message;
  *message.mutable_kept() = line;
  Send(message);
}

void FakeJobs::BreakStream() {
  std::unique_lock lock(mutex_);
  if (stream_context_ == nullptr) return;
  stream_context_->TryCancel();
  const auto* const broken = stream_;
  changed_.wait_for(lock, kLong, [this, broken] { return stream_ != broken; });
}

void FakeJobs::Stop() {
  {
    std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  BreakStream();
}

}  // namespace skein::services::testing
