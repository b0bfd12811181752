// A video file of JPEG pictures (Motion JPEG in AVI), written in the browser: camera mode sends the last seconds as one.

const ascii = (text) => Uint8Array.from(text, (letter) => letter.charCodeAt(0));
const number = (value) => new Uint8Array(new Uint32Array([value]).buffer); // every browser's machine is little-endian
const short = (value) => new Uint8Array(new Uint16Array([value]).buffer);

function join(parts) {
  const whole = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let place = 0;
  for (const part of parts) {
    whole.set(part, place);
    place += part.length;
  }
  return whole;
}

function chunk(name, ...parts) {
  const data = join(parts);
  return join([ascii(name), number(data.length), data, new Uint8Array(data.length % 2)]);
}

const list = (name, ...parts) => chunk("LIST", ascii(name), ...parts);

// `pictures` are the bytes of JPEGs of one size.
export function makeAvi(pictures, width, height, framesPerSecond) {
  const microseconds = Math.round(1e6 / framesPerSecond);
  const largest = Math.max(...pictures.map((picture) => picture.length));
  const main = [microseconds, largest * Math.ceil(framesPerSecond), 0, 0x10, pictures.length, 0, 1, largest, width, height, 0, 0, 0, 0];
  const stream = join([
    ascii("vids"), ascii("MJPG"), number(0), number(0), number(0), number(microseconds), number(1000000), number(0),
    number(pictures.length), number(largest), number(0xffffffff), number(0), short(0), short(0), short(width), short(height),
  ]);
  const format = join([
    number(40), number(width), number(height), short(1), short(24), ascii("MJPG"), number(3 * width * height),
    number(0), number(0), number(0), number(0),
  ]);
  const header = list("hdrl", chunk("avih", ...main.map(number)), list("strl", chunk("strh", stream), chunk("strf", format)));
  const index = [];
  let place = 4;
  for (const picture of pictures) {
    index.push(ascii("00dc"), number(0x10), number(place), number(picture.length));
    place += 8 + picture.length + (picture.length % 2);
  }
  const movie = list("movi", ...pictures.map((picture) => chunk("00dc", picture)));
  return new Blob([chunk("RIFF", ascii("AVI "), header, movie, chunk("idx1", ...index))], { type: "video/x-msvideo" });
}
