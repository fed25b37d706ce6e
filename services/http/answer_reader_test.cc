#include "services/http/answer_reader.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <string_view>

namespace skein::services::http {
namespace {

using State = AnswerReader::State;

// The answer, however its bytes are cut; nothing before the last of them. Nothing: it is broken.
std::optional<Response> Read(std::string_view bytes, std::string_view method = "GET") {
  std::optional<Response> read;
  for (const size_t piece : {size_t{1}, size_t{7}, bytes.size()}) {
    AnswerReader reader(method);
    State state = State::kMore;
    size_t at = 0;
    for (; state == State::kMore && at < bytes.size(); at += piece) {
      state = reader.Take(bytes.substr(at, piece));
    }
    EXPECT_NE(state, State::kMore) << bytes;
    EXPECT_GE(at, state == State::kWhole ? bytes.size() : 0) << bytes;
    if (state != State::kWhole) return std::nullopt;
    read = reader.TakeResponse();
  }
  return read;
}

TEST(AnswerReader, EndsWhereTheHeadSays) {
  const auto sized = Read("HTTP/1.1 202 Accepted\r\ncontent-length:  3 \r\nX-A: b\r\n\r\nabc");
  ASSERT_TRUE(sized.has_value());
  EXPECT_EQ(sized->status, 202);
  EXPECT_EQ(sized->body, "abc");
  EXPECT_EQ(FindHeader(sized->headers, "x-a"), "b");
  const auto chunked = Read(
      "HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n"
      "3\r\nabc\r\n0A;x=y\r\n\r\n\r\n567890\r\n0\r\nTrailer: t\r\n\r\n");
  ASSERT_TRUE(chunked.has_value());
  EXPECT_EQ(chunked->body, "abc\r\n\r\n567890");
}

TEST(AnswerReader, SomeAnswersHaveNoBody) {
  EXPECT_TRUE(Read("HTTP/1.1 204 No Content\r\n\r\n").has_value());
  EXPECT_TRUE(Read("HTTP/1.1 304 Not Modified\r\nContent-Length: 3\r\n\r\n").has_value());
  EXPECT_TRUE(Read("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n", "HEAD").has_value());
  EXPECT_TRUE(Read("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").has_value());
}

TEST(AnswerReader, WhatComesBeforeTheAnswerIsPassedOver) {
  const auto read = Read(
      "HTTP/1.1 100 Continue\r\nX-A: early\r\n\r\nHTTP/1.1 103 Early Hints\r\n\r\n"
      "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na");
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->status, 200);
  EXPECT_EQ(FindHeader(read->headers, "X-A"), "");
}

TEST(AnswerReader, WithoutALengthItEndsWithTheConnection) {
  AnswerReader reader("GET");
  EXPECT_EQ(reader.Take("HTTP/1.0 200 OK\r\n\r\nab"), State::kMore);
  EXPECT_EQ(reader.Take("c"), State::kMore);
  ASSERT_EQ(reader.TakeEnd(), State::kWhole);
  EXPECT_EQ(reader.TakeResponse().body, "abc");
}

TEST(AnswerReader, WhatFollowsIsPassedOver) {
  AnswerReader reader("GET");
  ASSERT_EQ(reader.Take("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nabc"), State::kWhole);
  EXPECT_EQ(reader.TakeResponse().body, "a");
}

TEST(AnswerReader, WhatIsCutOffIsIncomplete) {
  for (const char* bytes :
       {"", "HTT", "HTTP/1.1 200 OK\r\nX: y\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nab",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n"}) {
    AnswerReader reader("GET");
    EXPECT_EQ(reader.Take(bytes), State::kMore) << bytes;
    EXPECT_EQ(reader.TakeEnd(), State::kBroken) << bytes;
    EXPECT_NE(reader.problem().find("incomplete"), std::string::npos) << reader.problem();
  }
}

TEST(AnswerReader, WhatIsNoAnswerIsRefusedAtOnce) {
  for (const char* bytes :
       {"garbage", "HTTP/2 200 OK", "HTTP/1.1 xx OK\r\n\r\n", "HTTP/1.1 -20 OK\r\n\r\n",
        "HTTP/1.1 2000 OK\r\n\r\n", "HTTP/1.1 099 OK\r\n\r\n", "HTTP/1.1:200 OK\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffffff\r\n"}) {
    EXPECT_FALSE(Read(bytes).has_value()) << bytes;
  }
}

TEST(AnswerReader, SizesAreBounded) {
  AnswerReader endless("GET");
  State state = endless.Take("HTTP/1.1 200 OK\r\nX: ");
  for (int i = 0; state == State::kMore && i < 100; ++i)
    state = endless.Take(std::string(1000, 'x'));
  EXPECT_EQ(state, State::kBroken);
  AnswerReader large("GET");
  state = large.Take("HTTP/1.1 200 OK\r\n\r\n");
  EXPECT_EQ(state, State::kMore);
  EXPECT_EQ(large.Take(std::string(AnswerReader::kBytesMax + 1, 'x')), State::kBroken);
  EXPECT_EQ(large.problem(), "the answer exceeds 16 MiB");
}

}  // namespace
}  // namespace skein::services::http
