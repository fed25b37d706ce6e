#include "services/http/multipart.h"

#include <gtest/gtest.h>

#include <vector>

namespace skein::services::http {
namespace {

// A form as a line for each part: name[:filename]=content.
struct Read {
  std::vector<std::string> parts;
  std::string error;
  bool complete = false;
};

Read ReadForm(std::string_view body, size_t piece_bytes) {
  Read read;
  bool open = false;
  MultipartReader reader(
      "b",
      {.begin =
           [&](const FormPart& part) {
             EXPECT_FALSE(std::exchange(open, true));
             read.parts.push_back(part.name + (part.filename ? ":" + *part.filename : "") + "=");
           },
       .content =
           [&](std::string_view bytes) {
             EXPECT_TRUE(open);
             EXPECT_FALSE(bytes.empty());
             read.parts.back().append(bytes);
           },
       .end = [&] { EXPECT_TRUE(std::exchange(open, false)); }});
  while (!body.empty()) {
    const std::string_view piece = body.substr(0, piece_bytes);
    body.remove_prefix(piece.size());
    const bool fed = reader.Feed(piece);
    EXPECT_EQ(fed, reader.error().empty());
  }
  read.error = reader.error();
  read.complete = reader.complete();
  return read;
}

std::string Part(const std::string& header, const std::string& content) {
  return "--b\r\n" + header + "\r\n\r\n" + content + "\r\n";
}

TEST(MultipartTest, PartsAreReadWhateverTheirPieces) {
  const std::string body =
      Part("Content-Disposition: form-data; name=\"purpose\"", "batch") +
      Part(
          "content-type: application/jsonl\r\nCONTENT-DISPOSITION: Form-Data; "
          "filename=\"a \\\"b\\\".jsonl\"; name=file",
          "{}\r\n--\r\n--c\r\n\r\n") +
      Part("Content-Disposition: form-data; name=\"expires_after[seconds]\"", "") +
      "--b--\r\nwhat follows does not count\r\n--b\r\n";
  const std::vector<std::string> want = {
      "purpose=batch", "file:a \"b\".jsonl={}\r\n--\r\n--c\r\n\r\n", "expires_after[seconds]="};
  for (size_t piece_bytes = 1; piece_bytes <= body.size(); ++piece_bytes) {
    const Read read = ReadForm(body, piece_bytes);
    EXPECT_EQ(read.parts, want) << piece_bytes;
    EXPECT_TRUE(read.complete && read.error.empty()) << piece_bytes << " " << read.error;
  }
}

TEST(MultipartTest, AFormWithoutPartsIsOne) {
  const Read read = ReadForm("--b--", 2);
  EXPECT_TRUE(read.complete);
  EXPECT_TRUE(read.parts.empty());
}

TEST(MultipartTest, WhatIsCutShortIsNotComplete) {
  const std::string body = Part("Content-Disposition: form-data; name=a", "x") + "--b--";
  for (size_t size = 0; size < body.size(); ++size) {
    const Read read = ReadForm(body.substr(0, size), 3);
    EXPECT_FALSE(read.complete) << size;
    EXPECT_EQ(read.error, "") << size;
  }
}

TEST(MultipartTest, WhatIsMalformedIsRefused) {
  const std::string good = "Content-Disposition: form-data; name=a";
  const std::vector<std::string> bad = {
      "preamble\r\n" + Part(good, "x"),
      "--c\r\n",
      "--b \r\n" + good + "\r\n\r\nx",
      Part(good, "x") + "--bb--",
      Part("X: y", ""),
      Part("no colon", ""),
      Part("Content-Disposition: attachment; name=a", ""),
      Part("Content-Disposition: form-data", ""),
      Part("Content-Disposition: form-data; filename=a", ""),
      Part("Content-Disposition: form-data; name=\"a", ""),
      Part("Content-Disposition: form-data; name=a; name=b", ""),
      Part("Content-Disposition: form-data; name", ""),
      Part(good + "\r\n" + good, ""),
      "--b\r\n\r\n\r\nx",
      "--b\r\nX: " + std::string(MultipartReader::kPartHeaderBytesMax, 'y'),
  };
  for (const std::string& body : bad) {
    for (const size_t piece_bytes : {size_t{1}, body.size()}) {
      const Read read = ReadForm(body, piece_bytes);
      EXPECT_FALSE(read.error.empty()) << body;
      EXPECT_FALSE(read.complete) << body;
    }
  }
}

TEST(MultipartTest, BoundaryIsAsRfc2046Has) {
  EXPECT_EQ(BoundaryOf("multipart/form-data; boundary=b"), "b");
  EXPECT_EQ(BoundaryOf("Multipart/Form-Data ; charset=utf-8; Boundary=\"a b\""), "a b");
  const std::string longest(70, 'x');
  EXPECT_EQ(BoundaryOf("multipart/form-data;boundary=" + longest), longest);
  for (const std::string bad :
       {"multipart/mixed; boundary=b", "multipart/form-data",
        "multipart/form-data; boundary=", "multipart/form-data; boundary=\"\"",
        "multipart/form-data; boundary=\"a", "multipart/form-data; boundary=\"a \"",
        "multipart/form-data; boundary=a@b", "multipart/form-data; boundary=a; boundary=b"}) {
    EXPECT_EQ(BoundaryOf(bad), "") << bad;
  }
  EXPECT_EQ(BoundaryOf("multipart/form-data;boundary=x" + longest), "");
}

}  // namespace
}  // namespace skein::services::http
