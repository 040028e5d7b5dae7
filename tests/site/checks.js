// What the site's tests ask of a page, run inside it. Each gives a list of faults.
window.checks = {
  async images() {
    // Images below the fold are not loaded before they are needed; ask for all of them.
    const images = [...document.querySelectorAll("img")].filter((i) => i.getAttribute("src"))
    images.forEach((image) => (image.loading = "eager"))
    await Promise.allSettled(images.map((image) => image.decode()))
    return images.filter((i) => !i.naturalWidth || !i.alt).map((i) => i.src.slice(-80))
  },

  // Elements that reach out of the window and that no scrolling brings into it.
  cut(width) {
    const scrolls = (element) => {
      for (let at = element; at.tagName !== "MAIN"; at = at.parentElement)
        if (["auto", "scroll", "hidden"].includes(getComputedStyle(at).overflowX)) return true
      return false
    }
    return [...document.querySelectorAll("main *")]
      .filter((e) => e.checkVisibility() && e.getBoundingClientRect().right > width + 1)
      .filter((e) => !e.closest("mjx-assistive-mml") && !scrolls(e))
      .map((e) => `${e.tagName}.${e.className}: ${(e.textContent ?? "").slice(0, 40)}`)
      .slice(0, 5)
  },

  // Texts with less contrast than WCAG's level AA asks of text of normal size.
  contrast() {
    const colour = (element, property) => {
      const [r, g, b, alpha = 1] = getComputedStyle(element)[property].match(/[\d.]+/g).map(Number)
      return { rgb: [r, g, b], alpha }
    }
    const luminance = (rgb) => {
      const [r, g, b] = rgb
        .map((c) => c / 255)
        .map((c) => (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
      return 0.2126 * r + 0.7152 * g + 0.0722 * b
    }
    const behind = (element) => {
      for (let at = element; at; at = at.parentElement) {
        const { rgb, alpha } = colour(at, "backgroundColor")
        if (alpha === 1) return rgb
      }
      return [255, 255, 255]
    }
    const ratio = (element) => {
      const pair = [luminance(colour(element, "color").rgb), luminance(behind(element))]
      return (Math.max(...pair) + 0.05) / (Math.min(...pair) + 0.05)
    }
    const tags = "p li td th h1 h2 h3 dt dd summary pre code label caption a".split(" ")
    return [...document.querySelectorAll(tags.map((tag) => `main ${tag}`).join(","))]
      .filter((e) => e.innerText?.trim() && e.checkVisibility())
      .map((e) => [ratio(e), `${e.tagName}.${e.className}: ${e.innerText.slice(0, 40)}`])
      .filter(([contrast]) => contrast < 4.5)
      .slice(0, 5)
  },

  // The grounds that are not white of figures, which are drawn for a white one.
  figures() {
    return [...document.querySelectorAll("main .cell_output img")]
      .map((image) => getComputedStyle(image).backgroundColor)
      .filter((ground) => ground !== "rgb(255, 255, 255)")
  },
}
