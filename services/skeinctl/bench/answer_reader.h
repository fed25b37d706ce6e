// Reads one answer of an OpenAI-compatible server as its bytes arrive, streamed or whole, and
// records when text came. Pure: the caller passes the time.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "services/skeinctl/bench/record.h"
#include "services/skeinctl/bench/sse_parser.h"

namespace skein::services::bench {

class AnswerReader {
 public:
  // `record` outlives this.
  AnswerReader(bool streaming, RequestRecord* record);
  AnswerReader(const AnswerReader&) = delete;
  AnswerReader& operator=(const AnswerReader&) = delete;

  void OnStatus(int status) { record_->status = status; }
  void OnBody(std::string_view bytes, double now_s);
  // HTTP has ended the answer. Records an error if it is incomplete: a status other than 200, an
  // error event, a stream without its end marker, no text at all.
  void OnEnd(double now_s);

 private:
  void OnEvent(const std::string& data);
  void ReadWhole();
  void Fail(const std::string& kind, const std::string& message);
  bool is_stream() const { return streaming_ && record_->status == 200; }

  const bool streaming_;
  RequestRecord* const record_;
  SseParser events_;
  std::string body_;      // body of a whole answer
  double now_s_ = 0;      // arrival time of the bytes being read
  bool ended_ = false;    // [DONE] or a finish_reason was read
  bool counted_ = false;  // the server sent token counts
};

}  // namespace skein::services::bench
