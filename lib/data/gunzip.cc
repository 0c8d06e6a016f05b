#include "data/gunzip.h"

#include <algorithm>

#include "base/text.h"
#include "tensor/read_error.h"

namespace meshtrain {

GunzipBytes::GunzipBytes(const InputFile& file, const char* code) : file_(file), code_(code) {
  std::byte magic[2] = {};
  file.read_at(0, magic, std::min<uint64_t>(file.size(), 2));
  is_gzip_ = magic[0] == std::byte{0x1f} && magic[1] == std::byte{0x8b};
  if (is_gzip_) {
    input_.resize(size_t{1} << 16);
    MESHTRAIN_CHECK(inflateInit2(&stream_, 16 + MAX_WBITS) == Z_OK);  // 16: a gzip wrapper
  }
}

GunzipBytes::~GunzipBytes() {
  if (is_gzip_) {
    inflateEnd(&stream_);
  }
}

size_t GunzipBytes::read(std::byte* to, size_t num_bytes) {
  if (!is_gzip_) {
    const size_t count = std::min<uint64_t>(num_bytes, file_.size() - offset_);
    file_.read_at(offset_, to, count);
    offset_ += count;
    return count;
  }
  size_t done = 0;
  while (done < num_bytes && inflate_some(to + done, num_bytes - done, &done)) {
  }
  return done;
}

std::string unpacked_beginning(const InputFile& file, size_t most, const char* code) {
  std::string text(most, '\0');
  GunzipBytes bytes(file, code);
  text.resize(bytes.read(reinterpret_cast<std::byte*>(text.data()), most));
  return text;
}

// One call of inflate; false at the end of the last gzip member.
bool GunzipBytes::inflate_some(std::byte* to, size_t room, size_t* done) {
  if (stream_.avail_in == 0) {
    const size_t count = std::min<uint64_t>(input_.size(), file_.size() - offset_);
    file_.read_at(offset_, input_.data(), count);
    offset_ += count;
    stream_.next_in = reinterpret_cast<Bytef*>(input_.data());
    stream_.avail_in = static_cast<uInt>(count);
  }
  if (ended_) {  // a further member may follow
    if (stream_.avail_in == 0) {
      return false;
    }
    inflateReset(&stream_);
    ended_ = false;
  }
  const size_t step = std::min<size_t>(room, size_t{1} << 30);  // counts are 32 bits wide
  stream_.next_out = reinterpret_cast<Bytef*>(to);
  stream_.avail_out = static_cast<uInt>(step);
  const int code = inflate(&stream_, Z_NO_FLUSH);
  *done += step - stream_.avail_out;
  ended_ = code == Z_STREAM_END;
  if (code == Z_BUF_ERROR && offset_ == file_.size()) {
    read_error(code_, file_.path(), "the compressed data end early ({} bytes in all): truncated?",
               format_thousands(static_cast<int64_t>(file_.size())));
  }
  if (code != Z_OK && code != Z_STREAM_END) {
    read_error(code_, file_.path(), "the compressed data are damaged: {}",
               stream_.msg != nullptr ? stream_.msg : "unknown coding");
  }
  return true;
}

}  // namespace meshtrain
